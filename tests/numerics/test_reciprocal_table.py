"""Tables of MUFU.RCP: files, the model they make, and the tool that measures them.

There is no GPU here. Its part is played by the machine, which runs the tool's own kernels, and by
tables made up for the purpose.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rcp_dump_tool import SOURCE, disagreements, main, measure

from oracle.errors import NothingRan, UsageError
from oracle.formats import FloatArray
from oracle.machine.cubin import Cubin
from oracle.machine.launch import Program
from oracle.machine.lower import lower
from oracle.machine.memory import Memory
from oracle.machine.primitives import RCP_MODELS, RcpModel, rcp_exact
from oracle.machine.reciprocal_table import (
    MAGIC,
    MANTISSAS,
    deltas_of,
    rcp_from_table,
    rcp_model,
    read_table,
    write_table,
)
from oracle.numerics.conformance import examine
from oracle.numerics.exact import approximate_reciprocal
from oracle.numerics.models import under_model
from oracle.subjects.spec import writers_from_specs
from oracle.toolchain import compile_cuda


@pytest.fixture(scope="module")
def deltas() -> NDArray[np.int8]:
    """A made-up table: -1, 0 or 1 at every mantissa."""
    drawn = np.random.default_rng(0).integers(-1, 2, MANTISSAS // 256).astype(np.int8)
    return np.tile(drawn, 256)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, deltas: NDArray[np.int8]) -> Path:
    path = tmp_path_factory.mktemp("tables") / "made.rcp"
    write_table(path, deltas, {"device": "nobody's", "arch": "sm_90"})
    return path


def values() -> FloatArray:
    """Drawn patterns of every kind, and the ends of the range."""
    drawn = np.random.default_rng(1).integers(0, 1 << 32, 3000, np.uint32)
    ends = np.array([2.0**-126, 2.0**126, 2.0**127, 1.0], np.float32).view(np.uint32)
    around = (ends[:, None].astype(np.int64) + np.arange(-3, 4)).astype(np.uint32).ravel()
    special = np.array([0, 1, 0x7F800000, 0x7FC00000], np.uint32)
    positive = np.concatenate([drawn, around, special])
    return np.concatenate([positive, positive ^ np.uint32(0x80000000)]).view(np.float32)


# The file


def test_what_was_written_is_read(table: Path, deltas: NDArray[np.int8]) -> None:
    read, about = read_table(table)
    assert np.array_equal(read, deltas)
    assert about["device"] == "nobody's"


def test_a_table_of_mostly_right_results_is_small(tmp_path: Path) -> None:
    path = tmp_path / "exact.rcp"
    write_table(path, np.zeros(MANTISSAS, np.int8), {})
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("worst", [2, -2, 127])
def test_more_than_an_ulp_is_not_written(tmp_path: Path, worst: int) -> None:
    deltas = np.zeros(MANTISSAS, np.int8)
    deltas[77] = worst
    with pytest.raises(UsageError, match=f"{abs(worst)} ulp off"):
        write_table(tmp_path / "far.rcp", deltas, {})
    with pytest.raises(UsageError, match="has 10 results"):
        write_table(tmp_path / "short.rcp", deltas[:10], {})
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused(table: Path, tmp_path: Path) -> None:
    data = table.read_bytes()
    header, _, packed = data[len(MAGIC) :].partition(b"\n")
    about = json.loads(header)
    bomb = zlib.compress(bytes(MANTISSAS * 4))
    other = zlib.compress(bytes(MANTISSAS))
    damaged = {
        "cut": data[:-100],
        "header": data[: len(MAGIC) + 10],
        "no header": MAGIC,
        "no object": MAGIC + b"[]\n" + packed,
        "no sum": MAGIC + json.dumps({}).encode() + b"\n" + packed,
        "other bytes": MAGIC + json.dumps(about).encode() + b"\n" + other,
        "too much": MAGIC + json.dumps(about).encode() + b"\n" + bomb,
        "not compressed": MAGIC + header + b"\n" + b"x" * 100,
        "long header": MAGIC + b" " * 5000 + header + b"\n" + packed,
    }
    for name, content in damaged.items():
        path = tmp_path / f"{name}.rcp"
        path.write_bytes(content)
        with pytest.raises(UsageError, match="is damaged"):
            read_table(path)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("nothing of the kind")
    with pytest.raises(UsageError, match="is no table"):
        rcp_model(f"table:{path}")
    with pytest.raises(UsageError, match="No such file"):
        rcp_model(f"table:{tmp_path / 'missing'}")
    with pytest.raises(UsageError, match="Is a directory"):
        rcp_model(f"table:{tmp_path}")


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no model .* 'twice': give exact, \+1ulp"):
        rcp_model("twice")
    assert rcp_model("exact") is rcp_exact


# The model


def test_a_table_gives_what_it_says(table: Path, deltas: NDArray[np.int8]) -> None:
    """Each result moved by its own ulps before subnormals are flushed, in exact arithmetic."""
    x = values()
    with np.errstate(all="ignore"):
        found = rcp_from_table(table)(x)
    mantissas = x.view(np.uint32) & 0x7FFFFF
    for value, ulps, result in zip(x.tolist(), deltas[mantissas].tolist(), found, strict=True):
        slow = np.float32(approximate_reciprocal(value, ulps))
        if 2.0**126 < abs(value) < np.inf:
            # The result is subnormal or next to it, where an ulp of the table is less than one.
            assert result in (0, 2.0**-126, -(2.0**-126))
        else:
            assert np.array_equal(result, slow, equal_nan=True)
        assert np.isnan(result) or np.signbit(result) == np.signbit(slow)


@pytest.mark.parametrize(("name", "ulps"), [("exact", 0), ("+1ulp", 1), ("-1ulp", -1)])
def test_a_uniform_table_is_the_model_of_that_name(tmp_path: Path, name: str, ulps: int) -> None:
    path = tmp_path / "uniform.rcp"
    write_table(path, np.full(MANTISSAS, ulps, np.int8), {})
    x = values()
    x = x[~(np.abs(x) >= 2.0**126) | ~np.isfinite(x)]
    with np.errstate(all="ignore"):
        assert np.array_equal(rcp_from_table(path)(x), RCP_MODELS[name](x), equal_nan=True)


def test_scalars_and_shapes(table: Path) -> None:
    model = rcp_from_table(table)
    assert model(np.float32(2.0)[()]).shape == ()  # type: ignore[arg-type]
    assert model(np.ones((2, 3), np.float32)).shape == (2, 3)


@pytest.mark.parametrize("spec", ["store-sm100", "reference:k=linear,v=linear"])
def test_writers_follow_a_table(table: Path, spec: str) -> None:
    (writer,) = writers_from_specs([spec], ("sm_90",), ("bf16",))
    models = {**RCP_MODELS, "table": rcp_from_table(table)}
    found = examine(under_model(writer, f"table:{table}"), "bf16", 1000, models)
    assert found.models == ("table",)


# The tool


class MachineDevice:
    """Runs the tool's kernels on the machine, in the place of a GPU."""

    def __init__(self, rcp: RcpModel) -> None:
        cubin = Cubin.parse(compile_cuda(SOURCE.read_text(encoding="utf-8"), "sm_90"))
        self._kernels = {name: cubin.kernel(name) for name in cubin.kernels}
        self._programs = {name: Program(lower(cubin, name)) for name in cubin.kernels}
        self._rcp = rcp

    def run(self, kernel: str, count: int, given: NDArray[np.uint32] | None) -> NDArray[np.uint32]:
        memory = Memory()
        result = memory.map("result", np.zeros(count, np.uint32), writable=True)
        numbers = [result.base]
        if given is not None:
            numbers.append(memory.map("values", given).base)
        info = self._kernels[kernel]
        block = bytearray(info.param_size)
        for param, number in zip(info.params, [*numbers, count], strict=True):
            block[param.offset : param.offset + param.size] = number.to_bytes(param.size, "little")
        grid = (-(-count // 256), 1, 1)
        self._programs[kernel].launch(grid, (256, 1, 1), bytes(block), memory, rcp=self._rcp)
        return result.bytes.copy().view(np.uint32)


def test_the_tool_measures_what_the_device_does(table: Path, deltas: NDArray[np.int8]) -> None:
    count = 5000
    device = MachineDevice(rcp_from_table(table))
    assert np.array_equal(measure(device, count), deltas[:count])
    assert (measure(MachineDevice(rcp_exact), count) == 0).all()


def test_the_tool_checks_the_table_against_the_device(table: Path) -> None:
    assert disagreements(MachineDevice(rcp_from_table(table)), table, 2000).size == 0
    wrong = disagreements(MachineDevice(rcp_exact), table, 2000)
    assert 1000 < wrong.size < 4000


def test_deltas_count_away_from_zero() -> None:
    right = (np.float32(1) / np.array([1.0, 1 + 2**-23], np.float32)).view(np.uint32)
    assert deltas_of(right + np.array([1, 0], np.uint32)).tolist() == [1, 0]


def test_without_a_gpu_the_tool_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(NothingRan, match="no CUDA driver"):
        main([str(tmp_path / "out.rcp")])
    with pytest.raises(UsageError, match="usage"):
        main([])
