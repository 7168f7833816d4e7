"""A GPU's own reciprocal: the results of MUFU.RCP for every mantissa, as a file and as a model.

The reciprocal of m * 2^e with 1 <= m < 2 is that of m times 2^-e, so the 2^23 results for e = 0 say
everything but what happens at the ends of the range, where `.ftz` flushes subnormal inputs and
results to zero. A result is kept as its distance in ulps from the correctly rounded one, a signed
byte that is -1, 0 or 1.

The file: `MAGIC`, a line of JSON about where the table comes from, with the sha256 of the 2^23
bytes, and these bytes, compressed with zlib. `benchmarks/rcp_dump` makes such files.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.errors import UsageError
from oracle.files import read_at_most
from oracle.machine.primitives import F32, RCP_MODELS, RcpModel, rcp_exact

MAGIC = b"MUFU.RCP 1\n"
MANTISSAS = 1 << 23
MAX_ULPS = 1
"""How far the hardware is documented to be from the correctly rounded result."""
TABLE_PREFIX = "table:"

_MAX_FILE_BYTES = 16 << 20
_MAX_ABOUT_BYTES = 4096
_ONE = np.uint32(0x3F800000)
_FRACTION = np.uint32(0x007FFFFF)

Deltas = NDArray[np.int8]


def rcp_model(name: str) -> RcpModel:
    """The model called `name`: one of `RCP_MODELS`, or "table:FILE".

    Raises UsageError for any other name, and for a file that is no table.
    """
    if name.startswith(TABLE_PREFIX):
        return rcp_from_table(Path(name.removeprefix(TABLE_PREFIX)))
    if name not in RCP_MODELS:
        known = ", ".join(RCP_MODELS)
        raise UsageError(
            f"no model of the reciprocal is called {name!r}: give {known} or table:FILE"
        )
    return RCP_MODELS[name]


@lru_cache(maxsize=2)
def rcp_from_table(path: Path) -> RcpModel:
    """The model a table file describes. Raises UsageError where it is missing or damaged."""
    deltas, _ = read_table(path)

    def model(a: F32) -> F32:
        bits = np.asarray(a, np.float32).view(np.uint32)
        mantissa = bits & _FRACTION
        exponent = ((bits >> 23) & 0xFF).astype(np.int32)
        exact = np.float32(1) / (mantissa | _ONE).view(np.float32)
        moved = (exact.view(np.int32) + deltas[mantissa]).view(np.float32)
        magnitude = np.ldexp(moved, 127 - exponent)
        magnitude = np.where(magnitude < np.float32(2.0**-126), np.float32(0), magnitude)
        # Zero, subnormals, infinity and NaN have an exponent field of all zeros or all ones.
        ordinary = (exponent > 0) & (exponent < 0xFF)
        return np.where(ordinary, np.copysign(magnitude, a), rcp_exact(a))

    return model


def write_table(path: Path, deltas: Deltas, about: Mapping[str, Any]) -> None:
    """Write the table of `deltas`, int8 [2^23], with facts about where it was measured.

    Raises UsageError where a delta is larger than the documented ulp: then the models of this
    project, and its admissible sets, do not hold for that device.
    """
    _check(deltas, "the measured table")
    raw = np.ascontiguousarray(deltas, np.int8).tobytes()
    header = json.dumps({**about, "sha256": hashlib.sha256(raw).hexdigest()}, sort_keys=True)
    path.write_bytes(MAGIC + header.encode("ascii") + b"\n" + zlib.compress(raw))


def read_table(path: Path) -> tuple[Deltas, dict[str, Any]]:
    """The deltas of a table file, int8 [2^23], and what it says about itself.

    Raises UsageError where the file is missing, is no table, or does not match its checksum.
    """
    data = read_at_most(path, _MAX_FILE_BYTES)
    if len(data) > _MAX_FILE_BYTES or not data.startswith(MAGIC):
        raise UsageError(f"{path} is no table of MUFU.RCP: make one with benchmarks/rcp_dump")
    header, newline, packed = data[len(MAGIC) :].partition(b"\n")
    damaged = UsageError(f"{path} is damaged: make it anew with benchmarks/rcp_dump")
    if not newline or len(header) > _MAX_ABOUT_BYTES:
        raise damaged
    try:
        about = json.loads(header)
        inflater = zlib.decompressobj()
        raw = inflater.decompress(packed, MANTISSAS + 1)
    except (ValueError, RecursionError, zlib.error) as error:
        raise damaged from error
    if len(raw) != MANTISSAS or not isinstance(about, dict):
        raise damaged
    if hashlib.sha256(raw).hexdigest() != about.get("sha256"):
        raise damaged
    deltas = np.frombuffer(raw, np.int8)
    _check(deltas, str(path))
    return deltas, about


def deltas_of(results: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The distance in ulps of measured reciprocals of 1 + i * 2^-23 from the correctly rounded.

    `results` are the bit patterns for i = 0, 1, ...; positive means away from zero.
    """
    mantissa = np.arange(len(results), dtype=np.uint32)
    exact = np.float32(1) / (mantissa | _ONE).view(np.float32)
    return results.astype(np.int64) - exact.view(np.uint32).astype(np.int64)


def _check(deltas: NDArray[np.integer[Any]], what: str) -> None:
    if deltas.shape != (MANTISSAS,):
        raise UsageError(f"{what} has {deltas.size} results: a table has {MANTISSAS}")
    worst = int(np.abs(deltas.astype(np.int64)).max())
    if worst > MAX_ULPS:
        raise UsageError(
            f"{what} is {worst} ulp off somewhere, and MUFU.RCP is documented to be within "
            f"{MAX_ULPS}: measure again, and if it stays so, that documentation is wrong"
        )
