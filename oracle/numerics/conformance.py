"""Judges what writers store, value by value: bit-exact, admissible, or not.

A writer is admissible where every byte it stores is one that some reciprocal within an ulp explains
(`oracle.numerics.admissible`), and bit-exact under a model of the reciprocal where it stores the
very bytes the reference does with that model. The scale search is told from the bytes as well: a
binary does not say which one it was built for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oracle.errors import NothingRan
from oracle.formats import DTYPES, FloatArray, WordArray
from oracle.geometry import SIDES
from oracle.machine.primitives import RCP_MODELS
from oracle.numerics.admissible import admissible, explained
from oracle.numerics.capture import Capture, Groups, Inputs
from oracle.numerics.conventions import detect
from oracle.numerics.domain import Batch, drawn_batches, many_scales, tie_batches
from oracle.quantize import Reciprocal, ScaleSearch, quantize
from oracle.subjects.base import SubjectInfo, Writer

BIT_EXACT, ADMISSIBLE, INADMISSIBLE, NOT_RUN = "bit-exact", "admissible", "inadmissible", "not_run"
MAX_WITNESSES = 3

_PROBE_GROUPS = 1024
_PROBE_SCALES = (11.3, 7.9)
"""Far from 1 and from each other, so that no two conventions store the same scale bytes."""


COUNTS = ("groups", "free", "near_ties", "wrong_scales", "wrong_codes", "torn")
"""The counts of a tally, as they are called in JSON."""


@dataclass
class Tally:
    """Counts over groups of one kind.

    `free` groups have several admissible outcomes; in `near_ties` of them the scale byte is open.
    `wrong_scales` and `wrong_codes` are bytes and codes that are not admissible; `torn` groups have
    codes that are admissible one by one, but that no single multiplier leads to. `differing` counts
    the groups that differ from the reference, by model of the reciprocal.
    """

    groups: int = 0
    free: int = 0
    near_ties: int = 0
    wrong_scales: int = 0
    wrong_codes: int = 0
    torn: int = 0
    differing: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Count another tally's groups as well."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for model, count in other.differing.items():
            self.differing[model] = self.differing.get(model, 0) + count

    @property
    def wrong(self) -> int:
        """What is not admissible: bytes, codes, and groups of codes."""
        return self.wrong_scales + self.wrong_codes + self.torn


@dataclass(frozen=True)
class Conformance:
    """What one writer does with one dtype.

    `search` is the scale search its bytes follow; `conventions` are the global-scale conventions
    that explain its scale bytes, `models` those of the reciprocal under which it is bit-exact.
    `tallies` are by kind of batch. `witnesses` are the first groups that are not admissible.
    """

    info: SubjectInfo
    dtype: str
    status: str
    search: ScaleSearch | None = None
    conventions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    witnesses: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None

    @property
    def total(self) -> Tally:
        """The counts over all kinds of batches."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total


def default_batches(dtype: str, search: ScaleSearch, groups: int) -> Iterator[Batch]:
    """Batches of at least so many groups a writer: ties of as many scales as that takes, then
    drawn values."""
    drawn = groups // 4
    wanted, taken = groups - drawn, 0
    for batch in tie_batches(dtype, search, many_scales(max(2, wanted // 10_000), seed=1)):
        yield batch
        taken += len(batch.inputs.key) * len(SIDES)
        if taken >= wanted:
            break
    yield from drawn_batches(dtype, max(drawn, groups - taken) // len(SIDES))


def examine(
    writer: Writer,
    dtype: str,
    groups: int,
    models: Mapping[str, Reciprocal] = RCP_MODELS,
) -> Conformance:
    """Judge a writer on about `groups` groups. Raises UsageError where the writer itself fails."""
    try:
        capture = Capture(writer, dtype)
    except NothingRan as error:
        return Conformance(writer.info, dtype, NOT_RUN, reason=str(error))
    conventions, search = _recognise(capture, writer.info.scale_search)
    batches = default_batches(dtype, search, groups)
    return judge(capture, search, conventions, batches, models)


def judge(
    capture: Capture,
    search: ScaleSearch,
    conventions: tuple[str, ...],
    batches: Iterable[Batch],
    models: Mapping[str, Reciprocal],
) -> Conformance:
    """Hold what a writer stores for each batch against the admissible sets and the models."""
    tallies: dict[str, Tally] = {}
    witnesses: list[Mapping[str, Any]] = []
    decode = DTYPES[capture.dtype].decode
    for label, inputs in batches:
        stored = capture(inputs)
        for side, patterns, scale in _sides(inputs):
            tally, wrong = _compare(decode(patterns), scale, search, stored[side], models)
            tallies.setdefault(label, Tally()).add(tally)
            for index in wrong[: MAX_WITNESSES - len(witnesses)]:
                witnesses.append(_witness(capture.dtype, side, patterns[index], scale, search,
                                          stored[side], int(index)))  # fmt: skip
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    exact = tuple(model for model in models if not total.differing[model])
    status = INADMISSIBLE if total.wrong else BIT_EXACT if exact else ADMISSIBLE
    reason = None
    if total.wrong and conventions and "decode" not in conventions:
        reason = f"its scale bytes follow the convention {' or '.join(conventions)}, not decode"
    return Conformance(
        capture.writer.info, capture.dtype, status, search, conventions, exact, tallies,
        tuple(witnesses), reason,
    )  # fmt: skip


def exit_code(results: Sequence[Conformance]) -> int:
    """0 all admissible; 1 one is not; 5 nothing ran."""
    ran = [result for result in results if result.status != NOT_RUN]
    if not ran:
        return 5
    return int(any(result.status == INADMISSIBLE for result in ran))


def _sides(inputs: Inputs) -> Iterator[tuple[str, WordArray, float]]:
    yield "K", inputs.key, inputs.k_scale
    yield "V", inputs.value, inputs.v_scale


def _recognise(capture: Capture, declared: ScaleSearch) -> tuple[tuple[str, ...], ScaleSearch]:
    """The conventions that explain a writer's scale bytes, and the search its bytes follow.

    The search is the declared one unless another explains more groups.
    """
    noise = np.random.default_rng(7).standard_normal((2, _PROBE_GROUPS, 16), np.float32)
    verbs = DTYPES[capture.dtype]
    key, value = (verbs.encode(groups) for groups in noise)
    inputs = Inputs(key, value, *_PROBE_SCALES)
    stored = capture(inputs)
    named = [
        set(detect(verbs.decode(patterns), stored[side].scale_bytes, scale))
        for side, patterns, scale in _sides(inputs)
    ]
    conventions = tuple(name for name in sorted(named[0] & named[1]))
    wrong = {
        search: sum(
            _compare(verbs.decode(patterns), scale, search, stored[side], {})[1].size
            for side, patterns, scale in _sides(inputs)
        )
        for search in ScaleSearch
    }
    return conventions, min(ScaleSearch, key=lambda s: (wrong[s], s is not declared))


def _compare(
    x: FloatArray,
    scale: float,
    search: ScaleSearch,
    stored: Groups,
    models: Mapping[str, Reciprocal],
) -> tuple[Tally, np.ndarray[Any, np.dtype[np.int64]]]:
    """The tally of one side of one batch, and which of its groups are not admissible."""
    allowed = admissible(x, scale, search)
    scales_right, codes_right = allowed.admits(stored.codes, stored.scale_bytes)
    differing = {}
    for name, model in models.items():
        codes, scale_bytes = quantize(x, scale, search, model)
        same = (codes == stored.codes).all(axis=-1) & (scale_bytes == stored.scale_bytes)
        differing[name] = int(np.count_nonzero(~same))
    right = scales_right & codes_right.all(axis=-1)
    # Where nothing is open, codes that are right one by one are right together.
    doubtful = np.flatnonzero(right & allowed.free)
    together = explained(x[doubtful], scale, stored.codes[doubtful], stored.scale_bytes[doubtful])
    torn = doubtful[~together]
    right[torn] = False
    counts = (allowed.free, allowed.near_tie, ~scales_right, ~codes_right)
    free, near_ties, wrong_scales, wrong_codes = (int(np.count_nonzero(each)) for each in counts)
    tally = Tally(len(x), free, near_ties, wrong_scales, wrong_codes, len(torn), differing)
    return tally, np.flatnonzero(~right)


def _witness(
    dtype: str,
    side: str,
    patterns: WordArray,
    scale: float,
    search: ScaleSearch,
    stored: Groups,
    index: int,
) -> Mapping[str, Any]:
    """A group that was stored wrongly: its values, what was stored, and what the reference does."""
    x = DTYPES[dtype].decode(patterns)
    codes, scale_byte = quantize(x, scale, search)
    return {
        "side": side,
        "global_scale": scale,
        "values": x.tolist(),
        "stored_scale": int(stored.scale_bytes[index]),
        "stored_codes": stored.codes[index].tolist(),
        "reference_scale": int(scale_byte),
        "reference_codes": codes.tolist(),
    }
