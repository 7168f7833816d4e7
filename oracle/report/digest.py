"""Sums many findings or agreements up in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from oracle.geometry import SIDES
from oracle.report.faultwords import sentence
from oracle.report.patterns import in_symbols
from oracle.text import counted, enumerated, printable
from oracle.verdict import FAULTY, NOT_OBTAINED, Agreement, Configuration, Finding

_FEW = 6
"""Head sizes that are listed one by one."""
_CHANGING = "differently by geometry"
# The status that sums up several, the gravest first.
_GRAVITY = (
    "undefined",
    "out_of_region",
    "overlap",
    "gap",
    "unrecognised",
    "mismatch",
    "match",
    "unsupported",
    "not_run",
    "refused",
)


def obtained(findings: Iterable[Finding]) -> list[Finding]:
    """Those for which something was executed."""
    return [finding for finding in findings if finding.status not in NOT_OBTAINED]


def faulty(findings: Iterable[Finding]) -> list[Finding]:
    """Those that contradict what was declared."""
    return [finding for finding in findings if finding.status in FAULTY]


def scales(findings: Iterable[Finding], side: str) -> list[Finding]:
    """Those about the scale plane of one side for which something was executed."""
    return [f for f in obtained(findings) if f.plane == "scale" and f.side == side]


def by_geometry(findings: Iterable[Finding]) -> dict[Configuration, str]:
    """The gravest status of each configuration, in the order of the findings."""
    gravest: dict[Configuration, str] = {}
    for finding in findings:
        pair = (finding.status, gravest.get(finding.configuration, finding.status))
        gravest[finding.configuration] = min(pair, key=_GRAVITY.index)
    return gravest


def common_names(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The candidates that fit in every finding that any candidate fits."""
    named = [finding.layouts for finding in findings if finding.layouts]
    if not named:
        return ()
    return tuple(name for name in named[0] if all(name in names for names in named))


def map_in_words(findings: Iterable[Finding], nameless: str = "unnamed") -> str:
    """What a plane's maps are: the names that fit all of them, or what there is instead.

    That is their shape:stride, in symbols where it changes with the geometry, or `nameless` where
    they have none either; `-` where there is no map, because nothing ran or it ended early.
    """
    findings = [finding for finding in obtained(findings) if finding.positions]
    if not findings:
        return "-"
    names = common_names(findings)
    if names:
        return " = ".join(names)
    found = {" = ".join(f.layouts) or f.shape_stride or nameless for f in findings}
    if len(found) == 1:
        return found.pop()
    return (not any(f.layouts for f in findings) and in_symbols(findings)) or _CHANGING


def deeds_in_words(findings: Iterable[Finding]) -> str:
    """`K scales linear and V scales swizzle_4x4`, or `K and V scales linear`."""
    findings = list(findings)
    maps = {side: map_in_words(scales(findings, side), "in no named layout") for side in SIDES}
    if len(set(maps.values())) == 1:
        return f"{enumerated(SIDES)} scales {maps[SIDES[0]]}"
    return enumerated(
        f"{side} scales {'unknown' if words == '-' else words}" for side, words in maps.items()
    )


def telling_first(findings: Iterable[Finding]) -> list[Finding]:
    """The same findings: the smallest planes first, and of one geometry the gravest, scales first.

    A scale that lands in a data plane makes a fault there too; the scale's own tells more.
    """
    return sorted(
        findings,
        key=lambda f: (size(f.configuration), _GRAVITY.index(f.status), f.plane == "data"),
    )


def smallest_case(agreements: Iterable[Agreement]) -> Agreement:
    """The one with the smallest plane."""
    return min(agreements, key=lambda agreement: size(agreement.configuration))


def size(configuration: Configuration) -> int:
    """Elements of one side of a page, by which cases are large or small."""
    return configuration.head_size * configuration.num_heads * configuration.block_size


def configuration_in_words(configuration: Configuration) -> str:
    """`head size 64, 8 heads, block size 16, HND, bf16`."""
    sizes = sizes_in_words(configuration)
    return f"{sizes}, {configuration.cache_layout}, {configuration.dtype}"


def sizes_in_words(configuration: Configuration) -> str:
    """`head size 64, 8 heads, block size 16`: what counts of positions depend on."""
    heads = counted(configuration.num_heads, "head")
    return f"head size {configuration.head_size}, {heads}, block size {configuration.block_size}"


def place(configuration: Configuration) -> tuple[int, int, int, str]:
    """The configuration but for its dtype, to compare what was stored from different inputs."""
    return (
        configuration.head_size,
        configuration.num_heads,
        configuration.block_size,
        configuration.cache_layout,
    )


def head_sizes(results: Iterable[Finding | Agreement]) -> list[int]:
    """The distinct head sizes of findings or agreements, rising."""
    return sorted({result.configuration.head_size for result in results})


def at_head_sizes(some: Sequence[int], every: Sequence[int] = ()) -> str:
    """`at head size 64`, or `at every head size from 64 to 576` where there are no others."""
    if len(some) > 1 and list(some) == list(every):
        return f"at every head size from {some[0]} to {some[-1]}"
    if len(some) > _FEW:
        return f"at {listed(some)}"
    return f"at head size{'s' if len(some) > 1 else ''} {enumerated(some)}"


def listed(sizes: Sequence[int]) -> str:
    """`64, 128, 192`, or in short `head sizes 64 to 576 in steps of 64`, `27 head sizes from …`."""
    if len(sizes) <= _FEW:
        return ", ".join(map(str, sizes))
    steps = {after - before for before, after in pairwise(sizes)}
    ends = f"{sizes[0]} to {sizes[-1]}"
    if len(steps) == 1:
        return f"head sizes {ends} in steps of {steps.pop()}"
    return f"{len(sizes)} head sizes from {ends}"


def witness_in_words(witness: Mapping[str, Any]) -> str:
    """What a witness shows: a sentence, or `head 0, token 0; linear: K scale row 0 col 1`.

    In the latter numbers are coordinates and stay together; texts and nested coordinates follow in
    their order.
    """
    told = sentence(witness)
    if told is not None:
        return printable(told)
    numbers = [f"{k} {v}" for k, v in witness.items() if isinstance(v, int)]
    parts = [", ".join(numbers)] if numbers else []
    for key, value in witness.items():
        if isinstance(value, Mapping):
            parts.append(f"{key} {witness_in_words(value)}")
        elif key == "note":
            parts.append(printable(str(value)))
        elif not isinstance(value, int):
            parts.append(f"{key}: {printable(str(value))}")
    return "; ".join(parts)


def misplacement_in_words(witness: Mapping[str, Any], side: str) -> str:
    """What a disagreement's witness shows: who put the scale where, and who looks where.

    The side's own scale plane and the head itself go without saying, where both stay in them.
    """
    places = {"writer", "reader"}
    spot = witness_in_words({key: value for key, value in witness.items() if key not in places})
    stored, sought = (printable(str(witness.get(place, "?"))) for place in ("writer", "reader"))
    own = f"{side} scale head {witness.get('head')} "
    if stored.startswith(own) and sought.startswith(own):
        stored, sought = stored.removeprefix(own), sought.removeprefix(own)
    return f"{spot} is stored at {stored}, looked for at {sought}"
