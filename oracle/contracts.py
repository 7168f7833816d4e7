"""What is declared about who stores or reads which layout: contracts.toml, loaded and checked.

A contract is a promise about the K and V scale planes of an arch and a range of geometries. A
verdict checks writers against their own, and says which others a writer's bytes would keep.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from oracle.candidates import candidate
from oracle.errors import OracleError, UsageError
from oracle.geometry import CacheGeometry

ROLES = ("writer", "reader")
BASES = ("executed", "read", "reported")
"""How a claim is known: machine code run by this tool, public source, a public report."""


@dataclass(frozen=True)
class Contract:
    """One row of contracts.toml, whose opening comment explains the fields."""

    name: str
    role: str
    title: str
    archs: tuple[str, ...]
    k: str
    v: str
    head_size: int | tuple[int, ...]
    source: str
    basis: str
    block_size: int = 1
    global_scale: str = "decode"
    versions: str | None = None
    notes: str | None = None
    superseded_by: str | None = None

    @property
    def declared(self) -> Mapping[str, str]:
        """Side -> layout of its scale plane."""
        return {"K": self.k, "V": self.v}

    def excludes(self, geometry: CacheGeometry) -> str | None:
        """Why the contract says nothing about a geometry; None where it does."""
        head_size = geometry.head_size
        if isinstance(self.head_size, int):
            if head_size % self.head_size:
                return f"{self.name} takes head sizes in multiples of {self.head_size}"
        elif head_size not in self.head_size:
            return f"{self.name} takes head sizes {', '.join(map(str, self.head_size))}"
        if geometry.block_size % self.block_size:
            return f"{self.name} takes pages in multiples of {self.block_size} tokens"
        return None


@cache
def contracts() -> Mapping[str, Contract]:
    """Every contract in force by name, in the order of the file."""
    return {name: row for name, row in _every().items() if row.superseded_by is None}


@cache
def _every() -> Mapping[str, Contract]:
    """The contracts in force, and those of earlier versions."""
    text = resources.files("oracle").joinpath("contracts.toml").read_text(encoding="utf-8")
    rows = [_contract(row) for row in tomllib.loads(text)["contract"]]
    if len({row.name for row in rows}) != len(rows):
        raise OracleError("contracts.toml names a contract twice")
    return {row.name: row for row in rows}


def _contract(row: dict[str, object]) -> Contract:
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    if "global" in fields:
        fields["global_scale"] = fields.pop("global")
    found = Contract(**fields)  # type: ignore[arg-type]
    if found.role not in ROLES or found.basis not in BASES:
        raise OracleError(f"contracts.toml: {found.name} has an unknown role or basis")
    candidate(found.k), candidate(found.v)
    return found


def contract(name: str, role: str) -> Contract:
    """The contract of that name and role, in force or not.

    Raises UsageError that lists the names.
    """
    known = {c.name: c for c in _every().values() if c.role == role}
    if name not in known:
        raise UsageError(f"no {role} contract is called {name!r}: choose {', '.join(known)}")
    return known[name]


def kept(side: str, layouts: tuple[str, ...], geometry: CacheGeometry) -> tuple[str, ...]:
    """Writer contracts kept by a scale plane with these names, of those that cover a geometry."""
    return tuple(row.name for row in _covering("writer", geometry) if row.declared[side] in layouts)


def misread_by(side: str, layouts: tuple[str, ...], geometry: CacheGeometry) -> tuple[str, ...]:
    """Reader contracts that would look elsewhere, of those that cover a geometry."""
    return tuple(
        row.name for row in _covering("reader", geometry) if row.declared[side] not in layouts
    )


def _covering(role: str, geometry: CacheGeometry) -> list[Contract]:
    rows = [row for row in contracts().values() if row.role == role]
    return [row for row in rows if row.excludes(geometry) is None]


STORE_CONTRACTS = {"store-sm100": "sm_100a", "store-sm12x": "sm_120a"}
"""What this project's own store kernel promises, and the arch each is built for by default."""

DEFAULT_READERS = ("trtllm-gen", "flashinfer-fa2", "vllm-dequant-pin")
"""The readers a default verdict holds every writer against: K and V as SM100 documents them, both
linear, and both un-swizzled."""
