"""The structures that generated code and Python share, and where their fields are."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_uint64, c_void_p
from typing import Any

from numpy.typing import NDArray

MAX_BANKS = 16
"""Constant banks a kernel can name."""

DONE, FAULT, STEP_LIMIT = 0, 1, 2
"""What generated code returns: all lanes have left, a fault, or the step limit was reached."""


class RegionRecord(ctypes.Structure):
    """A region of global memory; `marks` is null where every byte holds a value.

    A store sets bytes of `touched`, which is `marks` or, where it is not null, a map of its own.
    """

    _fields_ = (
        ("base", c_uint64),
        ("size", c_uint64),
        ("data", c_void_p),
        ("marks", c_void_p),
        ("touched", c_void_p),
        ("writable", c_uint64),
    )


class Site(ctypes.Structure):
    """One load or store of the code: the region it last met, and for a store its log.

    Accesses at `base` + i * (size of the access) for i below `count` are in bounds. The log holds
    `records` of at most `capacity` vectors of lanes: addresses, words (all first words, then all
    second ones), and heads of two words of 64 bits (all first words, then all second ones): the
    first lane of a record; the bits of its lanes in the lower half of the other, and in the upper
    half its place in the order of the stores of these lanes.
    """

    _fields_ = (
        ("base", c_uint64),
        ("count", c_uint64),
        ("data", c_void_p),
        ("marks", c_void_p),
        ("records", c_uint64),
        ("capacity", c_uint64),
        ("address", c_void_p),
        ("words", c_void_p),
        ("heads", c_void_p),
    )


class Context(ctypes.Structure):
    """What one call of the generated code works on and reports."""

    _fields_ = (
        ("first_cta", c_uint64),
        ("cta_count", c_uint64),
        ("threads", c_uint64),
        ("grid_x", c_uint64),
        ("grid_y", c_uint64),
        ("tid_x", c_void_p),
        ("tid_y", c_void_p),
        ("tid_z", c_void_p),
        ("regions", c_void_p),
        ("region_count", c_uint64),
        ("sites", c_void_p),
        ("logging", c_uint64),
        ("grow", c_void_p),
        ("finish_lane", c_void_p),
        ("rcp_step", c_uint64),
        ("step_limit", c_uint64),
        ("known_constants", c_void_p),
        ("banks", c_void_p * MAX_BANKS),
        ("bank_words", c_uint64 * MAX_BANKS),
        ("steps", c_uint64),
        ("lane_instructions", c_uint64),
        ("stray_stores", c_uint64),
        ("split_groups", c_uint64),
        ("limit_pc", c_uint64),
    )


GROW = ctypes.CFUNCTYPE(None, c_void_p)
"""grow(context): make room for more records in the logs."""
FINISH_LANE = ctypes.CFUNCTYPE(
    ctypes.c_int, c_void_p, c_uint64, c_uint64, c_uint64, ctypes.c_uint32, c_void_p, c_uint64,
    c_uint64,
)  # fmt: skip
"""finish_lane(context, cta, first thread, lane, address, registers, steps, order) -> status."""


def address_of(array: NDArray[Any]) -> int:
    """Where the memory of an array begins, which has to be contiguous and writable."""
    return ctypes.addressof(c_char.from_buffer(array.data)) if array.size else 0


def offset(structure: type[ctypes.Structure], field: str) -> int:
    """Where a field stands in a structure, in bytes."""
    return int(getattr(structure, field).offset)


def bank_offsets(bank: int) -> tuple[int, int]:
    """Where the address of a constant bank stands, and its size in words."""
    return offset(Context, "banks") + 8 * bank, offset(Context, "bank_words") + 8 * bank
