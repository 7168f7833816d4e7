"""The slow ways of an access, written once in LLVM's textual form and linked into every kernel.

An access whose lanes are not all active, aligned and inside the region met last comes here. Each
lane is looked up on its own; what is found is kept for next time.
"""

from __future__ import annotations

import ctypes

from oracle.machine.compiled.abi import Context, RegionRecord, Site, offset

_FIND = """
find:
  %i32lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lane = zext i32 %i32lane to i64
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %pa = getelementptr i64, ptr %addresses, i64 %lane
  %a = load i64, ptr %pa
  %low = sub i64 %size, 1
  %off = and i64 %a, %low
  %straight = icmp eq i64 %off, 0
  br i1 %straight, label %search, label %fault
search:
  %r = phi i64 [ 0, %find ], [ %r1, %next ]
  %more = icmp ult i64 %r, %count
  br i1 %more, label %look, label %nowhere
look:
  %ro = mul i64 %r, {region_size}
  %region = getelementptr i8, ptr %regions, i64 %ro
  %base = load i64, ptr %region
  %psize = getelementptr i8, ptr %region, i64 {region_bytes}
  %rsize = load i64, ptr %psize
  %d = sub i64 %a, %base
  %room = sub i64 %rsize, %size
  %fits = icmp uge i64 %rsize, %size
  %inside = icmp ule i64 %d, %room
  %hit0 = and i1 %fits, %inside
  %pwritable = getelementptr i8, ptr %region, i64 {region_writable}
  %writable = load i64, ptr %pwritable
  %allowed = icmp uge i64 %writable, {needs_writable}
  %hit = and i1 %hit0, %allowed
  br i1 %hit, label %found, label %next
next:
  %r1 = add i64 %r, 1
  br label %search
found:
  %pdata = getelementptr i8, ptr %region, i64 {region_data}
  %data = load ptr, ptr %pdata
  %pmarks = getelementptr i8, ptr %region, i64 {region_known}
  %marks = load ptr, ptr %pmarks
  %at = getelementptr i8, ptr %data, i64 %d
  %known = icmp eq ptr %marks, null
  %shift = call i64 @llvm.cttz.i64(i64 %size, i1 true)
  %places = lshr i64 %rsize, %shift
  %word0 = getelementptr i32, ptr %words, i64 %lane
"""

_REMEMBER = """
  store i64 %base, ptr %site
  %pc = getelementptr i8, ptr %site, i64 {site_count}
  store i64 %places, ptr %pc
  %pd = getelementptr i8, ptr %site, i64 {site_data}
  store ptr %data, ptr %pd
  %pm = getelementptr i8, ptr %site, i64 {site_marks}
  store ptr %marks, ptr %pm
"""

_BEGIN = """
  %pregions = getelementptr i8, ptr %context, i64 {regions}
  %regions = load ptr, ptr %pregions
  %pcount = getelementptr i8, ptr %context, i64 {region_count}
  %count = load i64, ptr %pcount
  %quarter = lshr i64 %size, 2
  %narrow = icmp ult i64 %size, 4
  %number = select i1 %narrow, i64 1, i64 %quarter
"""

_LOAD = (
    "define internal i32 @load_slow(ptr %context, ptr %site, ptr %addresses, i32 %mask, i64 %size,"
    " ptr %words, i64 %stride) noinline {{\nentry:"
    + _BEGIN
    + """
  %all = mul i64 %number, %stride
  %bytes = shl i64 %all, 2
  call void @llvm.memset.p0.i64(ptr %words, i8 0, i64 %bytes, i1 false)
  br label %lanes
lanes:
  %left = phi i32 [ %mask, %entry ], [ %rest, %loaded ]
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %done, label %find
nowhere:
  br label %fault
"""
    + _FIND
    + """
  br i1 %known, label %remember, label %check
remember:"""
    + _REMEMBER
    + """
  br label %copy
check:
  %j = phi i64 [ 0, %found ], [ %j1, %marked ]
  %unchecked = icmp ult i64 %j, %size
  br i1 %unchecked, label %checkone, label %copy
checkone:
  %dj = add i64 %d, %j
  %pmark = getelementptr i8, ptr %marks, i64 %dj
  %mark = load i8, ptr %pmark
  %ismarked = icmp ne i8 %mark, 0
  br i1 %ismarked, label %marked, label %fault
marked:
  %j1 = add i64 %j, 1
  br label %check
copy:
  switch i64 %size, label %wide [ i64 1, label %one i64 2, label %two ]
one:
  %v1 = load i8, ptr %at
  %z1 = zext i8 %v1 to i32
  store i32 %z1, ptr %word0
  br label %loaded
two:
  %v2 = load i16, ptr %at, align 1
  %z2 = zext i16 %v2 to i32
  store i32 %z2, ptr %word0
  br label %loaded
wide:
  %k = phi i64 [ 0, %copy ], [ %k1, %widen ]
  %wider = icmp ult i64 %k, %number
  br i1 %wider, label %widen, label %loaded
widen:
  %from = getelementptr i32, ptr %at, i64 %k
  %v4 = load i32, ptr %from, align 1
  %ks = mul i64 %k, %stride
  %to = getelementptr i32, ptr %word0, i64 %ks
  store i32 %v4, ptr %to
  %k1 = add i64 %k, 1
  br label %wide
loaded:
  br label %lanes
done:
  ret i32 0
fault:
  ret i32 1
}}
"""
)

_STORE = (
    "define internal i32 @store_slow(ptr %context, ptr %site, ptr %addresses, i32 %mask, i64 %size,"
    " ptr %words, i64 %stride) noinline {{\nentry:"
    + _BEGIN
    + """
  br label %lanes
lanes:
  %left = phi i32 [ %mask, %entry ], [ %rest, %stored ]
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %done, label %find
nowhere:
  %pstrays = getelementptr i8, ptr %context, i64 {stray_stores}
  %strays = load i64, ptr %pstrays
  %strays1 = add i64 %strays, 1
  store i64 %strays1, ptr %pstrays
  br label %stored
"""
    + _FIND
    + _REMEMBER
    + """
  br i1 %known, label %copy, label %mark
mark:
  %pmark = getelementptr i8, ptr %marks, i64 %d
  call void @llvm.memset.p0.i64(ptr %pmark, i8 1, i64 %size, i1 false)
  br label %copy
copy:
  switch i64 %size, label %wide [ i64 1, label %one i64 2, label %two ]
one:
  %w1 = load i32, ptr %word0
  %t1 = trunc i32 %w1 to i8
  store i8 %t1, ptr %at
  br label %stored
two:
  %w2 = load i32, ptr %word0
  %t2 = trunc i32 %w2 to i16
  store i16 %t2, ptr %at, align 1
  br label %stored
wide:
  %k = phi i64 [ 0, %copy ], [ %k1, %widen ]
  %wider = icmp ult i64 %k, %number
  br i1 %wider, label %widen, label %stored
widen:
  %ks = mul i64 %k, %stride
  %from = getelementptr i32, ptr %word0, i64 %ks
  %w4 = load i32, ptr %from
  %to = getelementptr i32, ptr %at, i64 %k
  store i32 %w4, ptr %to, align 1
  %k1 = add i64 %k, 1
  br label %wide
stored:
  br label %lanes
done:
  ret i32 0
fault:
  ret i32 1
}}
"""
)

_FINISH = """
define internal i32 @finish(ptr %context, i64 %cta, i64 %first, i32 %mask, ptr %targets,
    ptr %registers, i64 %steps, i64 %order) noinline {{
entry:
  %psplit = getelementptr i8, ptr %context, i64 {split_groups}
  %split = load i64, ptr %psplit
  %split1 = add i64 %split, 1
  store i64 %split1, ptr %psplit
  br label %lanes
lanes:
  %left = phi i32 [ %mask, %entry ], [ %rest, %finished ]
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %done, label %one
one:
  %i32lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lane = zext i32 %i32lane to i64
  %less = sub i32 %left, 1
  %rest = and i32 %left, %less
  %ptarget = getelementptr i32, ptr %targets, i64 %lane
  %target = load i32, ptr %ptarget
  %pfinish = getelementptr i8, ptr %context, i64 {finish_lane}
  %code = load ptr, ptr %pfinish
  %status = call i32 %code(ptr %context, i64 %cta, i64 %first, i64 %lane, i32 %target,
    ptr %registers, i64 %steps, i64 %order)
  %well = icmp eq i32 %status, 0
  br i1 %well, label %finished, label %stop
finished:
  br label %lanes
stop:
  ret i32 %status
done:
  ret i32 0
}}
"""

_DECLARATIONS = """
declare i32 @llvm.cttz.i32(i32, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


def helpers() -> str:
    """The text of the helper functions: @load_slow, @store_slow and @finish."""
    fields = {
        "region_size": ctypes.sizeof(RegionRecord),
        "region_bytes": offset(RegionRecord, "size"),
        "region_data": offset(RegionRecord, "data"),
        "region_writable": offset(RegionRecord, "writable"),
        "site_count": offset(Site, "count"),
        "site_data": offset(Site, "data"),
        "site_marks": offset(Site, "marks"),
        **{
            name: offset(Context, name)
            for name in ("regions", "region_count", "stray_stores", "split_groups", "finish_lane")
        },
    }
    load = _LOAD.format(needs_writable=0, region_known=offset(RegionRecord, "marks"), **fields)
    store = _STORE.format(needs_writable=1, region_known=offset(RegionRecord, "touched"), **fields)
    return _DECLARATIONS + load + store + _FINISH.format(**fields)
