"""Every promise of a store, by name."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.properties import addresses, stored, variations
from oracle.properties.promise import Promise, Violation

__all__ = ["PROMISES", "Promise", "Violation"]

PROMISES: Mapping[str, Promise] = {
    promise.name: promise
    for promise in (
        Promise(
            "round-trip",
            "Every group is read back as the specification quantises it.",
            stored.round_trip,
        ),
        Promise(
            "bijective",
            "Every coordinate has a byte of its own, stored once, and every byte a coordinate.",
            addresses.bijective,
        ),
        Promise(
            "in-region",
            "Every byte is stored in the region of its own side and plane.",
            addresses.in_region,
        ),
        Promise(
            "untouched-elsewhere",
            "Bytes of other slots and pages keep what they held.",
            stored.untouched_elsewhere,
        ),
        Promise(
            "padding-ignored",
            "Tokens with a negative slot store nothing.",
            variations.padding_ignored,
        ),
        Promise(
            "last-wins",
            "Of several tokens of one slot the last stays, or the writer says so.",
            variations.last_wins,
        ),
        Promise(
            "token-independent",
            "What is stored of a token does not depend on the other tokens of the launch.",
            variations.token_independent,
        ),
        Promise(
            "order-independent",
            "What is stored does not depend on the order of the tokens.",
            variations.order_independent,
        ),
        Promise(
            "page-independent",
            "Renaming the pages renames them in what is stored, and changes nothing else.",
            variations.page_independent,
        ),
        Promise(
            "deterministic",
            "The same store leaves the same bytes every time.",
            variations.deterministic,
        ),
        Promise(
            "as-declared",
            "The layout of every plane is the declared one, at every position.",
            addresses.as_declared,
            addresses.nothing_declared,
        ),
        Promise(
            "equal-across-archs",
            "Builds of the same code for other archs leave the same bytes.",
            variations.equal_across_archs,
            variations.no_other_build,
        ),
        Promise(
            "agrees-with-reader",
            "The reader looks for every scale where the writer put it.",
            addresses.agrees,
            reads=True,
        ),
    )
}
