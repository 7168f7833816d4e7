"""From a kernel to native code: LLVM text, optimised and compiled for this processor, and cached.

The key of a cached object is the kernel's own representation, the processor and its features, the
versions of LLVM and of this back end, and the number of lanes. An object that does not name its key
is foreign and is built anew, as is one that the disk cache finds damaged.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from oracle import diskcache
from oracle.errors import OracleError
from oracle.machine.compiled.chunklog import LogShape, StoreSite
from oracle.machine.compiled.emit import Emitter
from oracle.machine.compiled.flow import constants, live_in, varying_registers, varying_values
from oracle.machine.compiled.helpers import helpers
from oracle.machine.compiled.ifconvert import if_convert
from oracle.machine.compiled.lock import compiling
from oracle.machine.compiled.pure import PURE_NAMES, reciprocal
from oracle.machine.compiled.sites import Sites
from oracle.machine.ir import Function, Value

VERSION = 10
"""Part of every key: raise it with any change of the code generated or of `abi`."""
PACKAGE = "llvmlite"
_SUFFIX = ".native"
_STATE = frozenset(
    {"const", "get", "set", "ldc", "special", "rcp", "load", "store", "require", "uniform"}
    | {"converge", "abandon"}
)
_ENDS = frozenset({"jump", "branch", "exit", "ret", "reconverge"})
_METADATA = """
attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}
!0 = !{{!"branch_weights", i32 1000, i32 1}}
!1 = !{{!"branch_weights", i32 1, i32 1000}}
!2 = !{{}}
!3 = !{{i32 1}}
"""


class NotCompiled(OracleError):
    """The compiled tier cannot execute this kernel, or is not installed."""

    exit_code = 2


def refusal(function: Function) -> str | None:
    """Why a kernel has to stay on NumPy lanes, by name; None where it need not."""
    wrong: dict[str, None] = {}
    for block in function.blocks.values():
        for op in block.ops:
            if op.name in ("load", "store") and op.attrs[0] != "global":
                wrong[f"{op.attrs[0]} memory"] = None
            elif op.name not in PURE_NAMES | _STATE:
                wrong[op.name] = None
        if block.terminator.kind not in _ENDS:
            wrong[block.terminator.kind] = None
    if not wrong and _far_constants(function):
        wrong["constant memory indexed by the lane"] = None
    if not wrong:
        return None
    return f"{function.name} stays on NumPy lanes: it uses {', '.join(wrong)}"


def _far_constants(function: Function) -> bool:
    """Whether constant memory is read at places that differ between lanes."""
    computed: dict[int, list[Value]] = {}
    for address, block in function.blocks.items():
        known = constants(block)
        places = [op.args[0] for op in block.ops if op.name == "ldc" and op.args[0] not in known]
        if places:
            computed[address] = places
    entry = varying_registers(function) if computed else {}
    return any(
        place in varying_values(function.blocks[address], entry[address])
        for address, places in computed.items()
        for place in places
    )


def constant_words(function: Function) -> set[tuple[int, int]]:
    """Bank and byte offset of every constant whose place is known before the kernel runs."""
    found = set()
    for block in function.blocks.values():
        known = constants(block)
        for op in block.ops:
            if op.name == "ldc" and op.args[0] in known:
                found.add((int(op.attrs[0]), known[op.args[0]]))
    return found


def digest(function: Function) -> str:
    """sha256 of everything in a kernel that its code depends on."""
    parts: list[object] = [function.return_points]
    for address in sorted(function.blocks):
        block = function.blocks[address]
        end = block.terminator
        parts.append((address, block.length, end.kind, end.target, end.fallthrough))
        parts.append(end.value.index if end.value else None)
        for op in block.ops:
            arguments = [value.index for value in op.args]
            results = [(value.index, value.type._value_) for value in op.results]
            parts.append((op.name, op.attrs, op.pc, arguments, results))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Host:
    """The processor that code is made for, and how many lanes go into a vector."""

    cpu: str
    features: str
    lanes: int
    llvm: str


@cache
def host() -> Host:
    """This processor. Raises NotCompiled where llvmlite is missing."""
    llvm = bindings()
    features = llvm.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") and features.get("avx512dq") else 8
    version = f"{metadata.version(PACKAGE)} {llvm.llvm_version_info}"
    return Host(llvm.get_host_cpu_name(), features.flatten(), lanes, version)


@cache
def bindings() -> Any:
    """llvmlite's bindings, ready to generate code. Raises NotCompiled where they are missing."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise NotCompiled(
            f"the compiled tier needs llvmlite ({error}): pip install 'layout-oracle[fast]'"
        ) from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@dataclass
class Build:
    """The objects of one kernel, made when asked for.

    `seconds` is what compiling took, 0 for objects that came from the cache.
    """

    function: Function
    lanes: int = 0
    seconds: float = 0.0
    _digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be compiled; number registers, loads and stores."""
        reason = refusal(self.function)
        if reason is not None:
            raise NotCompiled(reason)
        self.lanes = self.lanes or host().lanes
        self._digest = digest(self.function)
        names = {
            str(op.attrs[0])
            for block in self.function.blocks.values()
            for op in block.ops
            if op.name in ("get", "set")
        }
        self.registers = {name: i for i, name in enumerate(sorted(names))}
        self.sites = Sites(self.function)
        stores = [
            StoreSite(site.number, site.pc, site.size)
            for site in self.sites.all
            if site.name == "store"
        ]
        self.log_shape = LogShape(stores, len(self.sites.all), self.lanes)

    def key(self, part: str) -> str:
        """The cache key of one of the objects, "group" or "single"."""
        machine = host()
        parts = [
            part, self._digest, machine.cpu, machine.features, machine.llvm, str(self.lanes),
            str(VERSION),
        ]  # fmt: skip
        return diskcache.key_of(text.encode() for text in parts)

    def cached(self) -> bool:
        """Whether the cache holds the object for groups of lanes."""
        return _load(self.key("group")) is not None

    def code(self, part: str) -> bytes:
        """One of the objects: "group" for groups of lanes, or "single", which finishes single ones.

        It comes from the cache, or is compiled now.
        """
        key = self.key(part)
        found = _load(key)
        if found is None:
            with compiling():
                # Another process may just have done it.
                found = _load(key) or self.compile(part)
        return found

    def compile(self, part: str) -> bytes:
        """One of the objects, compiled whatever the cache holds, and kept in it."""
        start = time.perf_counter()
        made = compile_text(self.text(part))
        self.seconds += time.perf_counter() - start
        key = self.key(part)
        diskcache.store(key, _SUFFIX, key.encode() + made)
        return made

    def text(self, part: str) -> str:
        """The LLVM text of one of the objects."""
        live = live_in(self.function)
        group = Emitter(
            if_convert(self.function), self.lanes, self.lanes, self.registers, self.sites, live
        )
        body = group.group()
        models = reciprocal(group.text, self.lanes, "rcp_lanes")
        if part == "single":
            one = Emitter(self.function, 1, self.lanes, self.registers, self.sites, live)
            body = one.single(group.entries)
            models = []
        models += reciprocal(group.text, 1, "rcp_one")
        bits = 32 * self.lanes
        return "\n".join([helpers(), *models, body, _METADATA.format(bits=bits)])


def _load(key: str) -> bytes | None:
    entry = diskcache.load(key, _SUFFIX)
    name = key.encode()
    return entry[len(name) :] if entry is not None and entry.startswith(name) else None


def compile_text(text: str) -> bytes:
    """LLVM text compiled to an object for this processor."""
    llvm = bindings()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=host().cpu, features=host().features, opt=2, reloc="pic", codemodel="default"
    )
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))
