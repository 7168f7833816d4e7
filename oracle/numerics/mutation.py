"""The mutation score of an oracle: how many wrong writers it does not accept.

Every tolerance of `oracle.numerics.tolerances` and this tool's own check meet every mutant of
`oracle.numerics.mutants`. A tolerance sees what a reader of the contract reads back from the
mutant's cache. The tool recovers the mutant's address map and compares it with the declared
layouts, and holds the bytes against the admissible sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from oracle.errors import OracleError
from oracle.findings import writer_findings
from oracle.formats import DTYPES
from oracle.geometry import CacheGeometry
from oracle.numerics.capture import Capture
from oracle.numerics.conformance import BIT_EXACT, INADMISSIBLE, judge
from oracle.numerics.domain import drawn_batches, tie_batches
from oracle.numerics.mutants import (
    DECLARED,
    PLACEMENT_MUTANTS,
    QUANTISER_MUTANTS,
    VARIANTS,
    MutantWriter,
    layout_mutants,
)
from oracle.numerics.tolerances import TOLERANCES, RoundTrip, random_data
from oracle.probe import map_writer
from oracle.quantize import ScaleSearch, rcp_exact
from oracle.reference import reference_read
from oracle.requests import ReadRequest, StoreRequest
from oracle.verdict import FAULTY, Configuration

OWN, OWN_EXACT = "this tool", "this tool, bit-exact"
"""The tool's own check, and the stricter one for writers whose reciprocal is known to be exact."""
HEAD_SIZES = (64, 128, 256, 512)
"""Head sizes that layouts are mutated at: what coincides differs from one to another."""

_DTYPE = "bf16"
_TOKENS, _HEADS = 128, 2
_FEW_TOKENS = 16
"""Tokens of a page where no layout is looked for that needs more."""
_SCALES = (1.0, 3 / 448)
_DRAWN = 800


@dataclass(frozen=True)
class Row:
    """One mutant: at how many of `tried` head sizes each oracle accepts it."""

    mutant: str
    kind: str
    tried: int
    accepted: dict[str, int]


def oracles() -> tuple[str, ...]:
    """The names of all oracles, this tool's own the last."""
    return (*(tolerance.name for tolerance in TOLERANCES), OWN, OWN_EXACT)


def score(rows: Iterable[Row], oracle: str) -> tuple[int, int]:
    """How many mutants an oracle rejects, of how many; each head size counts as one."""
    rows = list(rows)
    tried = sum(row.tried for row in rows)
    return tried - sum(row.accepted[oracle] for row in rows), tried


@cache
def mutation_rows() -> tuple[Row, ...]:
    """The whole table: first what is right, then layouts, places and quantisers that are wrong."""
    answers: dict[tuple[str, str], list[dict[str, bool]]] = {}
    for kind, head_size, mutant in _cases():
        geometry = CacheGeometry(1, _TOKENS, _HEADS, head_size)
        answers.setdefault((kind, mutant.name), []).append(accepted_by(mutant, geometry))
    return tuple(
        Row(name, kind, len(each), {o: sum(answer[o] for answer in each) for o in oracles()})
        for (kind, name), each in answers.items()
    )


def _cases() -> Iterator[tuple[str, int, MutantWriter]]:
    for mutant in VARIANTS:
        yield "right", 128, mutant
    layouts = [
        (size, mutant)
        for size in HEAD_SIZES
        for mutant in layout_mutants(CacheGeometry(1, _TOKENS, 1, size))
    ]
    for size, mutant in sorted(layouts, key=lambda case: case[1].name[0]):
        yield "layout", size, mutant
    for mutant in PLACEMENT_MUTANTS:
        yield "place", 128, mutant
    for mutant in QUANTISER_MUTANTS:
        yield "quantiser", 128, mutant


def accepted_by(mutant: MutantWriter, geometry: CacheGeometry) -> dict[str, bool]:
    """Which oracles accept a mutant in a geometry."""
    trips = {data: round_trip(mutant, geometry, data) for data in {t.data for t in TOLERANCES}}
    answers = {each.name: each.accepts(trips[each.data]) for each in TOLERANCES}
    sound = places_right(mutant, geometry)
    status = bytes_status(mutant) if sound else INADMISSIBLE
    answers[OWN], answers[OWN_EXACT] = status != INADMISSIBLE, status == BIT_EXACT
    return answers


def round_trip(mutant: MutantWriter, geometry: CacheGeometry, data: str) -> RoundTrip:
    """Store random data with a mutant, under global scales amax/448, and read it back."""
    verbs = DTYPES[_DTYPE]
    shape = (geometry.num_slots, geometry.num_heads, geometry.head_size)
    key_patterns, value_patterns = map(verbs.encode, random_data(data, shape, seed=5))
    key, value = verbs.decode(key_patterns), verbs.decode(value_patterns)
    k_scale, v_scale = (float(np.abs(values).max()) / 448 for values in (key, value))
    slots = np.random.default_rng(6).permutation(geometry.num_slots)
    empty = np.zeros(geometry.cache_bytes, np.uint8)
    request = StoreRequest(
        geometry, _DTYPE, key_patterns, value_patterns, slots, k_scale, v_scale, empty
    )
    cache = mutant.write(request).cache
    read = reference_read(
        ReadRequest(geometry, cache, slots, k_scale, v_scale), DECLARED["K"], DECLARED["V"]
    )
    return RoundTrip(key, value, *read)


def places_right(mutant: MutantWriter, geometry: CacheGeometry) -> bool:
    """Whether the tool finds a mutant's codes and scales where it is declared to put them."""
    if mutant.layouts == DECLARED:
        geometry = replace(geometry, block_size=_FEW_TOKENS)
    try:
        written = map_writer(mutant, geometry, _DTYPE)
    except OracleError:
        return False
    findings = writer_findings(mutant.info, Configuration.of(geometry, _DTYPE), written)
    return not any(found.status in FAULTY for found in findings)


def bytes_status(mutant: MutantWriter) -> str:
    """What the tool says about the bytes of a mutant that stores them in the right places."""
    search = ScaleSearch.MAX_OVER_6
    batches = [*tie_batches(_DTYPE, search, _SCALES), *drawn_batches(_DTYPE, _DRAWN)]
    capture = Capture(mutant, _DTYPE)
    return judge(capture, search, (), batches, {"exact": rcp_exact}).status
