"""Whole CTAs: kernels whose warps wait for each other do what CUDA and PTX define."""

from __future__ import annotations

import numpy as np
import pytest
from ctas import TENSOR_MAP, run

from oracle.errors import UsageError
from oracle.machine.context import Unsupported
from oracle.machine.cubin import Cubin
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import MachineFault
from oracle.machine.tensormap import TensorMap
from oracle.toolchain import compile_cuda

T = np.arange(128)


def test_syncthreads_shows_every_warp_what_the_others_wrote() -> None:
    out, _ = run("__shared__ u32 s[128]; s[t] = 3 * t; __syncthreads(); out[t] = s[127 - t];")
    assert np.array_equal(out, 3 * (127 - T))


def test_named_barriers_join_only_the_threads_they_count() -> None:
    out, _ = run(
        """
        __shared__ u32 s[128];
        s[t] = t + 1;
        if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
        else asm volatile("bar.sync 2, 64;" ::: "memory");
        out[t] = s[t ^ 63];
        """
    )
    assert np.array_equal(out, (T ^ 63) + 1)


def test_a_consumer_waits_for_its_producer_through_several_phases() -> None:
    out, _ = run(
        """
        __shared__ u32 s[32]; __shared__ u64 full, empty;
        if (t == 0) { init(&full, 32); init(&empty, 32); }
        __syncthreads();
        u32 sum = 0;
        if (warp == 3) {
          for (u32 i = 0; i < 5; i++) {
            wait(&empty, (i & 1) ^ 1); s[lane] = 100 * i + lane; arrive(&full);
          }
        } else if (warp == 0) {
          for (u32 i = 0; i < 5; i++) { wait(&full, i & 1); sum += s[lane]; arrive(&empty); }
        }
        out[t] = sum;
        """
    )
    assert np.array_equal(out[:32], 1000 + 5 * np.arange(32))


def test_expected_bytes_hold_a_phase_until_they_are_there() -> None:
    out, _ = run(
        """
        __shared__ u32 s; __shared__ u64 b;
        if (t == 0) { init(&b, 1); s = 1; arrive_expect(&b, 96); }
        __syncthreads();
        if (t == 64) {
          s = 2;
          asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" :: "r"(at(&b)));
          s = 3;
          asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;" :: "r"(at(&b)));
        }
        if (warp == 1) { wait(&b, 0); out[t] = s; }
        """
    )
    assert (out[32:64] == 3).all()


def test_expect_tx_alone_adds_bytes_and_no_arrival() -> None:
    out, _ = run(
        """
        __shared__ u64 b;
        if (t == 0) {
          init(&b, 2);
          asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 8;" :: "r"(at(&b)));
          asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0], 2; }" :: "r"(at(&b)));
        }
        __syncthreads();
        if (warp == 3) asm volatile(
          "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
          :: "r"(at(&b)), "r"(lane == 7 ? 8 : 0));
        if (warp == 0) wait(&b, 0);
        out[t] = 1;
        """
    )
    assert (out == 1).all()


@pytest.mark.parametrize("noinc", [True, False])
def test_cp_async_arrives_when_the_bytes_are_there(noinc: bool) -> None:
    form, count = (".noinc", 32) if noinc else ("", 64)
    out, _ = run(
        f"""
        __shared__ __align__(16) u32 s[128]; __shared__ u64 b;
        if (t == 0) init(&b, {count});
        __syncthreads();
        if (warp == 2) {{
          asm volatile("cp.async.ca.shared.global [%0], [%1], 16;"
                       :: "r"(at(s + 4 * lane)), "l"(in + 4 * lane));
          asm volatile("cp.async.mbarrier.arrive{form}.shared.b64 [%0];" :: "r"(at(&b)) : "memory");
          {"" if noinc else "arrive(&b); arrive(&b);"}
        }}
        wait(&b, 0);
        out[t] = s[t];
        """
    )
    assert np.array_equal(out, T)


def test_one_lane_of_each_warp_is_elected() -> None:
    out, _ = run("out[t] = elected();")
    assert out.reshape(4, 32).sum(axis=1).tolist() == [1, 1, 1, 1]


def test_registers_can_always_be_had() -> None:
    out, _ = run(
        """
        if (warp == 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        out[t] = t;
        """
    )
    assert np.array_equal(out, T)


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        ("add", lambda old, v: old + v),
        ("min", min),
        ("max", max),
        ("and", lambda old, v: old & v),
        ("or", lambda old, v: old | v),
        ("xor", lambda old, v: old ^ v),
        ("inc", lambda old, v: 0 if old >= v else old + 1),
        ("dec", lambda old, v: v if old == 0 or old > v else old - 1),
    ],
)
@pytest.mark.parametrize("space", ["shared", "global"])
def test_atomic_operations(operation: str, after: object, space: str) -> None:
    kind = "b32" if operation in ("and", "or", "xor") else "u32"
    place = "s" if space == "shared" else "(out + 32)"
    form, address = ("r", f"at({place})") if space == "shared" else ("l", f"(u64){place}")
    out, _ = run(
        f"""
        __shared__ u32 s[1]; u32 old;
        if (t == 0) *{place} = 21;
        __syncwarp();
        asm volatile("atom.{space}.{operation}.{kind} %0, [%1], %2;"
                     : "=r"(old) : "{form}"({address}), "r"(in[t]) : "memory");
        __syncwarp();
        out[t] = old; if (t == 0) out[33] = *{place};
        """,
        np.array([(7 * i + 5) % 61 for i in range(1024)], np.uint32),
        threads=32,
        words=64,
    )
    value, before = 21, []
    for lane in range(32):
        before.append(value)
        value = after(value, (7 * lane + 5) % 61)  # type: ignore[operator]
    assert int(out[33]) == value
    assert sorted(out[:32].tolist()) == sorted(before)


def test_an_exchange_hands_every_value_on() -> None:
    out, _ = run(
        "__shared__ u32 s; if (t == 0) s = 99; __syncthreads(); out[t] = atomicExch(&s, t);"
        " __syncthreads(); if (t == 0) out[128] = s;",
        words=129,
    )
    assert sorted(out.tolist()) == sorted([99, *range(128)])


def unpacked(data: np.ndarray) -> np.ndarray:
    """16 elements of each 16-byte row of `data` [rows, 4 words]: the nibbles of its first half."""
    halves = data[:, :2, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    return halves.reshape(len(data), 16)


def random_words() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << 32, 1024, dtype=np.uint32)


_LDMATRIX = """
  __shared__ __align__(16) u32 s[128]; u32 x, y;
  for (u32 i = 0; i < 4; i++) s[32 * i + lane] = in[32 * i + lane];
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.%s.shared.b8x16.b4x16_p64 {%%0, %%1}, [%%2];"
               : "=r"(x), "=r"(y) : "r"(at(s) + 16 * ((lane * 5) & 31)));
  out[lane] = x; out[32 + lane] = y;
"""


def test_ldmatrix_gives_four_elements_of_a_row() -> None:
    # PTX ISA, ldmatrix: thread t of a matrix of 8 rows holds row t / 4, elements 4 (t % 4) to + 3.
    data = random_words()
    out, _ = run(_LDMATRIX % "m8n16.x2", data, threads=32, words=64)
    rows = unpacked(data[:128].reshape(32, 4))[[5 * lane & 31 for lane in range(32)]]
    for matrix in range(2):
        for lane in range(32):
            four = rows[8 * matrix + lane // 4][4 * (lane % 4) :][:4]
            expected = sum(int(e) << 8 * i for i, e in enumerate(four))
            assert int(out[32 * matrix + lane]) == expected


def test_ldmatrix_transposes_a_square_of_16() -> None:
    data = random_words()
    out, _ = run(_LDMATRIX % "m16n16.x1.trans", data, threads=32, words=64)
    columns = unpacked(data[:128].reshape(32, 4))[[5 * lane & 31 for lane in range(16)]].T
    for half in range(2):
        for lane in range(32):
            four = columns[8 * half + lane // 4][4 * (lane % 4) :][:4]
            expected = sum(int(e) << 8 * i for i, e in enumerate(four))
            assert int(out[32 * half + lane]) == expected


_TILE = """
  __shared__ __align__(1024) u32 s[128]; __shared__ u64 b;
  if (t == 0) { init(&b, 1); }
  __syncthreads();
  if (warp == 0 && elected()) {
    arrive_expect(&b, %d);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%%0], [%%1, {%%3, %%4, %%5}], [%%2];"
      :: "r"(at(s)), "l"(&map), "r"(at(&b)), "r"(%d), "r"(%d), "r"(%d) : "memory");
  }
  wait(&b, 0);
  out[t] = s[t];
"""


def test_a_tma_tile_is_a_slice_of_the_tensor() -> None:
    tensor_map = TensorMap("t", 0, (64, 8, 4), (64, 512), (32, 4, 4))
    out, outcome = run(_TILE % (512, 16, 2, 0), maps={TENSOR_MAP: tensor_map})
    tensor = np.arange(1024, dtype=np.uint32).view(np.uint8)[:2048].reshape(4, 8, 64)
    assert np.array_equal(out.view(np.uint8).reshape(4, 4, 32), tensor[:, 2:6, 16:48])
    assert outcome.tiles == {"t": 1}


def test_a_tile_beyond_the_tensor_is_zero_there() -> None:
    tensor_map = TensorMap("t", 0, (64, 8, 4), (64, 512), (32, 4, 4))
    out, _ = run(_TILE % (512, 48, -1, 2), maps={TENSOR_MAP: tensor_map})
    tensor = np.arange(1024, dtype=np.uint32).view(np.uint8)[:2048].reshape(4, 8, 64)
    expected = np.zeros((4, 4, 32), np.uint8)
    expected[:2, 1:, :16] = tensor[2:, :3, 48:]
    assert np.array_equal(out.view(np.uint8).reshape(4, 4, 32), expected)


def test_a_byte_too_many_expected_and_who_waits_for_it_is_named() -> None:
    tensor_map = TensorMap("t", 0, (64, 8, 4), (64, 512), (32, 4, 4))
    with pytest.raises(MachineFault, match=r"is stuck: warp 0 .*1 bytes to come.*; warp 3 "):
        run(_TILE % (513, 16, 2, 0), maps={TENSOR_MAP: tensor_map})


def test_a_pointer_to_no_tensor_map_is_a_fault() -> None:
    with pytest.raises(MachineFault, match="no tensor map of 3D"):
        run(_TILE % (512, 0, 0, 0))


def test_a_wait_that_nobody_ends_names_the_barrier() -> None:
    body = "__shared__ u64 b; if (t == 0) init(&b, 7); __syncthreads(); wait(&b, 0); out[t] = 1;"
    with pytest.raises(MachineFault, match="phase 0, 7 of 7 arrivals"):
        run(body)


def test_a_named_barrier_that_misses_threads_says_how_many_came() -> None:
    body = 'if (warp < 3) asm volatile("bar.sync 1, 128;" ::: "memory"); out[t] = 1;'
    with pytest.raises(MachineFault, match="at barrier 1, where 96 of 128 threads have come"):
        run(body)


def test_bytes_still_to_come_at_the_end_are_a_fault() -> None:
    body = "__shared__ u64 b; if (t == 0) { init(&b, 1); arrive_expect(&b, 64); } out[t] = 1;"
    with pytest.raises(MachineFault, match="ends with bytes to come"):
        run(body)


def test_an_endless_loop_reaches_the_step_limit() -> None:
    body = 'if (in[0] == 0) for (;;) asm volatile("membar.cta;" ::: "memory"); out[t] = 1;'
    with pytest.raises(MachineFault, match="step limit of 5000"):
        run(body, step_limit=5000)


def test_shared_memory_nobody_wrote_is_a_fault() -> None:
    with pytest.raises(MachineFault, match="shared bytes nobody wrote"):
        run("__shared__ volatile u32 s[128]; if (t == 200) s[0] = 1; out[t] = s[t];")


def test_lanes_that_part_meet_again() -> None:
    out, _ = run(
        """
        u32 x = t;
        for (u32 i = 0; i < (lane & 3); i++) x += in[(x + i) & 1023];
        __syncwarp();
        out[t] = __shfl_xor_sync(~0u, x, 1) + __popc(__ballot_sync(~0u, x & 1))
               + __reduce_max_sync(~0u, x);
        """
    )
    x = T.copy()
    for t in range(128):
        for i in range(t & 3):
            x[t] += (x[t] + i) & 1023
    x = x.reshape(4, 32)
    expected = x[:, np.arange(32) ^ 1] + (x & 1).sum(1, keepdims=True) + x.max(1, keepdims=True)
    assert np.array_equal(out, expected.ravel())


def test_local_memory_is_each_lanes_own() -> None:
    out, _ = run(
        "volatile u32 x[16]; for (u32 i = 0; i < 16; i++) x[(i + lane) & 15] = i * t;"
        " u32 sum = 0; for (u32 i = 0; i < 16; i++) sum += (i + 1) * x[i]; out[t] = sum;"
    )
    expected = [sum((((i + t) & 15) + 1) * i * t for i in range(16)) for t in range(128)]
    assert np.array_equal(out, expected)


# -- coded memory -------------------------------------------------------------------------------


def test_coded_memory_may_be_moved_about() -> None:
    _, outcome = run(
        "__shared__ u32 s[128]; s[t] = __byte_perm(in[t], in[t + 1], 0x3216); out[t] = 7;",
        coded=True,
    )
    assert outcome.steps > 0


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("if (in[t] & 4) out[t] = 1; else out[t] = in[0] ? 2 : 3;", "depends on"),
        ("__shared__ u32 s[256]; s[in[t] & 255] = 1; out[t] = s[t];", "an address depends on"),
        ("out[t] = in[t];", "a store to global memory of what depends on"),
        ("out[t] = __ballot_sync(~0u, in[t] & 1) ? 1 : 2;", "a vote depends on"),
        ("out[in[t] & 63] = 1;", "an address depends on"),
    ],
)
def test_nothing_but_data_may_depend_on_coded_memory(body: str, what: str) -> None:
    with pytest.raises(MachineFault, match=what):
        run(body, coded=True)


def test_the_same_kernel_runs_where_memory_is_not_coded() -> None:
    out, _ = run("__shared__ u32 s[256]; s[in[t] & 255] = 1; out[t] = 1;")
    assert (out == 1).all()


# -- limits -------------------------------------------------------------------------------------


def test_a_kernel_that_needs_its_cta_is_not_launched_lane_by_lane() -> None:
    source = (
        'extern "C" __global__ void k(unsigned* o) { unsigned p; asm volatile("{ .reg .pred p;'
        ' elect.sync _|p, ~0; selp.u32 %0, 1, 0, p; }" : "=r"(p)); o[threadIdx.x] = p; }'
    )
    function = lower(Cubin.parse(compile_cuda(source, "sm_100a", {})))
    assert function.cooperative
    with pytest.raises(Unsupported, match="warp by warp"):
        Program(function)


@pytest.mark.parametrize("threads", [16, 2048])
def test_impossible_ctas_are_refused(threads: int) -> None:
    with pytest.raises(UsageError, match=f"a CTA of {threads} threads"):
        run("out[t] = t;", threads=threads)


def test_a_late_tile_is_waited_for() -> None:
    tensor_map = TensorMap("t", 0, (64, 8, 4), (64, 512), (32, 4, 4))
    soon, _ = run(_TILE % (512, 16, 2, 0), maps={TENSOR_MAP: tensor_map})
    late, _ = run(_TILE % (512, 16, 2, 0), maps={TENSOR_MAP: tensor_map}, late=True)
    assert np.array_equal(soon, late)


def test_a_missing_wait_shows_where_tiles_are_late() -> None:
    body = (_TILE % (512, 16, 2, 0)).replace("wait(&b, 0);", "__syncthreads();")
    tensor_map = TensorMap("t", 0, (64, 8, 4), (64, 512), (32, 4, 4))
    run(body, maps={TENSOR_MAP: tensor_map})
    with pytest.raises(MachineFault, match="shared bytes nobody wrote"):
        run(body, maps={TENSOR_MAP: tensor_map}, late=True)
