"""What the values of options may be: parsers that refuse by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MAX_HEAD_SIZE = 16_384
MAX_NUM_HEADS = 1_024
MAX_BLOCK_SIZE = 65_536
MAX_JOBS = 1_024
MAX_GROUPS = 1_000_000_000
MAX_LAYERS = 10_000


def list_of(parse: Callable[[str], object]) -> Callable[[str], list[object]]:
    """A parser of values separated by commas."""

    def parse_list(text: str) -> list[object]:
        return [parse(part.strip()) for part in text.split(",")]

    return parse_list


def up_to(most: int) -> Callable[[str], int]:
    """A parser of whole numbers from 1."""

    def parse(text: str) -> int:
        # Only plain digits: int() would also take "1_6" and digits of other scripts.
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} will not do: give a whole number from 1 to {most}"
            )
        return number

    return parse


def head_size(text: str) -> int:
    """A head size: a multiple of 16."""
    size = up_to(MAX_HEAD_SIZE)(text)
    if size % 16:
        raise argparse.ArgumentTypeError(
            f"{text!r} will not do: give a multiple of 16, the elements that share a scale"
        )
    return size


def one_of(*names: str) -> Callable[[str], str]:
    """A parser of one of a few names."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} will not do: give {' or '.join(names)}")
        return text

    return parse


def whole_number(text: str) -> int:
    """A whole number, of any sign and size: what reads it knows what will do."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 100):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def span(text: str) -> range:
    """A range, written START:STOP."""
    start, colon, stop = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} will not do: give START:STOP")
    return range(whole_number(start), whole_number(stop))


def word(text: str) -> str:
    """A text that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name will not do")
    return text
