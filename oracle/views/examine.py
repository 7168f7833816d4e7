"""Everything that is asked of a cache tensor under one split, answered and ready to be shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oracle.candidates import candidate
from oracle.contracts import contracts
from oracle.errors import OracleError, UsageError
from oracle.geometry import SIDES
from oracle.views.owners import Coordinate, Owners, Shared
from oracle.views.parties import Party, parties
from oracle.views.planes import SPLITS, Carving, ViewSplit, carve
from oracle.views.roundtrip import RoundTrip, round_trip
from oracle.views.slices import SliceVerdict, slice_verdict, unequal_parts
from oracle.views.tensor import CacheTensor, departures, from_array

LINEAR: Mapping[str, str] = dict.fromkeys(SIDES, "linear")

WORDS = {
    "sides": "K is apart from V",
    "planes": "data are apart from scales",
    "pages": "page is apart from page",
    "heads": "head is apart from head",
    "bytes": "every byte has one owner at most",
}
"""What the answer to each question says where it is yes."""

SHARING = {
    "sides": "K and V share a byte",
    "planes": "data and scales share a byte",
    "pages": "two pages share a byte",
    "heads": "two heads share a byte",
    "bytes": "two coordinates share a byte",
}
"""And where it is no."""


@dataclass(frozen=True)
class Asked:
    """What is asked beside the standing questions.

    `layout` names the order the strides should be in, `layers` of how many layers; `scale_layouts`
    that of each side's scales; `judged` are contracts that must be usable; `heads` and `tokens` a
    slice; `read_split` the split of a party that reads what another one writes, with its own
    `read_layouts` (default: the same).
    """

    layout: str | None = None
    layers: int | None = None
    scale_layouts: Mapping[str, str] = field(default_factory=lambda: LINEAR)
    judged: Collection[str] = ()
    heads: range | None = None
    tokens: range | None = None
    read_split: ViewSplit | None = None
    read_layouts: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the names of contracts."""
        for name in self.judged:
            if name not in contracts():
                known = ", ".join(contracts())
                raise UsageError(f"no contract is called {name!r}: choose {known}")


class Examination:
    """One tensor under one split; every answer is found when first asked for."""

    def __init__(self, tensor: CacheTensor, split: ViewSplit, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.carving: Carving = carve(tensor, split)
        self.owners = Owners(self.carving)

    @property
    def apart(self) -> bool:
        """Whether every byte has one owner at most, and all are in the storage."""
        return self.owners.once and self.owners.outside is None

    @cached_property
    def departures(self) -> tuple[str, ...]:
        """How the strides differ from the named order."""
        asked = self.asked
        if asked.layout is None:
            return ()
        return tuple(departures(self.carving.tensor, asked.layout, asked.layers))

    @cached_property
    def parties(self) -> list[Party]:
        """Who may be used."""
        return parties(self.carving, self.apart)

    @cached_property
    def slice(self) -> SliceVerdict | None:
        """The verdict about a slice, where one was asked for."""
        asked, tensor = self.asked, self.carving.tensor
        if asked.heads is None and asked.tokens is None:
            return None
        heads = asked.heads or range(tensor.heads)
        tokens = asked.tokens or range(tensor.tokens)
        return slice_verdict(self.carving, heads, tokens, asked.scale_layouts)

    @cached_property
    def unequal_parts(self) -> str | None:
        """Why a page may not be cut into equal parts for its heads."""
        return unequal_parts(self.carving)

    @cached_property
    def round_trip(self) -> RoundTrip | None:
        """What a reader with a split of its own finds, where one was asked for."""
        asked = self.asked
        if asked.read_split is None:
            return None
        reader = carve(self.carving.tensor, asked.read_split)
        layouts = asked.read_layouts or asked.scale_layouts
        return round_trip(self.carving, reader, asked.scale_layouts, layouts)

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """Everything that is not sound, a line each, the gravest first; empty where all is."""
        lines = []
        answers = self.owners.answers
        kinds = [name for name, shared in answers.items() if shared and name != "bytes"]
        if answers["bytes"] and not kinds:
            kinds = ["bytes"]
        lines += [f"{SHARING[name]}: {self.shared_in_words(answers[name])}" for name in kinds]
        if self.owners.outside is not None:
            offset, owner = self.owners.outside
            storage = self.carving.tensor.storage_bytes
            lines.append(
                f"a view leaves the storage of {storage} bytes: {self.words(owner)} is at {offset}"
            )
        lines += self.departures
        lines += [
            f"{party.name} may not be used: {party.reasons[0]}"
            for party in self.parties
            if party.name in self.asked.judged and not party.usable
        ]
        if self.slice is not None:
            lines += [
                f"{side}'s scales are not closed under this slice: {why}"
                for side, why in self.slice.open_sides.items()
            ]
        if self.round_trip is not None and self.round_trip.witness is not None:
            wrong = self.round_trip.coordinates - self.round_trip.kept
            lines.append(
                f"the reader finds {wrong} of {self.round_trip.coordinates} bytes wrong: "
                f"{self.round_trip.witness}"
            )
        return tuple(lines)

    @cached_property
    def sound_splits(self) -> tuple[str, ...]:
        """Where something is not sound: the splits under which everything that is asked is."""
        # How strides differ from a named order is the same under every split.
        if not self.faults or self.departures:
            return ()
        return tuple(name for name, split in SPLITS.items() if self._sound_under(split))

    def _sound_under(self, split: ViewSplit) -> bool:
        try:
            return not Examination(self.carving.tensor, split, self.asked).faults
        except OracleError:
            # A split that refuses the tensor, or under which nothing can be told, is no way out.
            return False

    def shared_in_words(self, shared: Shared | None) -> str:
        """A byte and its two owners."""
        if shared is None:
            return "no byte"
        return f"byte {shared.byte} is {self.words(shared.first)} and {self.words(shared.second)}"

    def words(self, owner: Coordinate) -> str:
        """An owner by its logical coordinate."""
        names = self.logical(owner)
        plane = f"{names.pop('side')} {names.pop('plane')}"
        page = names.pop("page")
        return f"page {page} {plane} " + " ".join(f"{name} {at}" for name, at in names.items())

    def logical(self, owner: Coordinate) -> dict[str, Any]:
        """An owner's token and byte, or token and scale column: what is stored at its place."""
        place = {"page": owner.page, "side": owner.side, "plane": owner.kind, "head": owner.head}
        if owner.kind == "data":
            return {**place, "token": owner.row, "byte": owner.column}
        tensor = self.carving.tensor
        columns = tensor.scale_columns
        layout = candidate(self.asked.scale_layouts[owner.side]).layout(tensor.tokens, columns)
        index = int(layout.inverse()(owner.row * columns + owner.column))
        # The layout's index counts tokens first.
        return {**place, "token": index % tensor.tokens, "column": index // tensor.tokens}


def reason_against(
    tensor: Any,
    split: ViewSplit,
    dims: str | None,
    layout: str | None,
    judged: Collection[str],
) -> str | None:
    """Why a torch tensor or NumPy array must not be used as it is, in one line; None if it may."""
    asked = Asked(layout=layout, judged=judged)
    faults = Examination(from_array(tensor, dims), split, asked).faults
    return "; ".join(faults) or None
