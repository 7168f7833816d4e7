"""Damaged cubins, fat binaries and wheels: each gives a result or one line, in no time and space.

`LAYOUT_ORACLE_MUTATIONS` says how many mutations of each kind are tried.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_fatbin import container
from wheels import (
    HOME,
    code_entry,
    kernel_name,
    release_name,
    shared_object,
    store_cubin,
    store_object,
    write_wheel,
)

from oracle.errors import OracleError
from oracle.machine.cubin import Cubin
from oracle.machine.fatbin import Limits, walk
from oracle.subjects.extraction import extract
from oracle.subjects.vllm import STORE_KERNEL, kernels_of

MUTATIONS = int(os.environ.get("LAYOUT_ORACLE_MUTATIONS", "400"))
SECONDS = 2.0
"""What one artefact may take, far more than any needs."""
MESSAGE_LENGTH = 2000
READ = "read"
GROWTH_KIB = 512 << 10
"""What all of them together may add to the memory of the process."""

Attempt = Callable[[bytes], object]

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, -1)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A copy with one to four faults, half of them near the ends, where headers and tables are."""
    copy = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        size = len(copy)
        edge = min(size, 256)
        anywhere, near = chance.randrange(size), chance.randrange(edge)
        spot = chance.choice((anywhere, anywhere, near, size - 1 - near))
        match chance.randrange(7):
            case 0:
                copy[spot] ^= 1 << chance.randrange(8)
            case 1:
                copy[spot : spot + 8] = chance.randbytes(chance.randint(1, 8))
            case 2:
                width = chance.choice((2, 4, 8))
                spot -= spot % width
                value = chance.choice(EXTREMES) & ((1 << 8 * width) - 1)
                copy[spot : spot + width] = value.to_bytes(width, "little")
            case 3:
                del copy[spot:]
            case 4:
                del copy[spot : spot + chance.randint(1, 64)]
            case 5:
                copy[spot:spot] = chance.randbytes(chance.randint(1, 64))
            case 6:
                other = chance.randrange(size)
                copy[spot : spot + 64] = copy[other : other + 64]
        if not copy:
            return b""
    return bytes(copy)


def survive(seed: str, data: bytes, attempt: Attempt) -> None:
    """Try every mutation of `data`; what is raised must be an error for the user, on one line."""
    chance = random.Random(seed)
    outcomes = {True: 0, False: 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(MUTATIONS):
        hostile = mutated(data, chance)
        message = READ
        start = time.process_time()
        try:
            attempt(hostile)
        except OracleError as error:
            message = str(error)
        except Exception as error:
            pytest.fail(f"mutation {number} of {seed} raises {error!r}")
        assert time.process_time() - start < SECONDS, f"mutation {number} of {seed} takes too long"
        assert message
        assert len(message) < MESSAGE_LENGTH
        assert "\n" not in message
        outcomes[message == READ] += 1
    # Were nothing ever read, or nothing ever refused, there would be nothing to see.
    assert outcomes[True]
    assert outcomes[False]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of what is found."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "file" / "cache"))


def search_in(path: Path) -> Attempt:
    """Looks for the store kernel in bytes written to a path."""

    def attempt(data: bytes) -> object:
        path.write_bytes(data)
        return extract(path, STORE_KERNEL)

    return attempt


def list_in(path: Path) -> Attempt:
    """Lists every kernel of bytes written to a path."""

    def attempt(data: bytes) -> object:
        path.write_bytes(data)
        return kernels_of(str(path), matching="")

    return attempt


def everything(data: bytes) -> object:
    """Unpacks and parses every entry of a fat binary."""
    limits = Limits(payload_bytes=8 << 20)
    return [Cubin.parse(e.payload()) for e in walk(data, limits) if e.kind == "cubin"]


def small_cubin(arch: str) -> bytes:
    return store_cubin(arch, "bf16")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100f", "sm_120f"])
def test_cubins(tmp_path: Path, arch: str) -> None:
    survive(f"cubin {arch}", small_cubin(arch), Cubin.parse)


def test_cubin_files(tmp_path: Path) -> None:
    survive("cubin file", small_cubin("sm_100f"), list_in(tmp_path / "x.cubin"))


def test_fat_binaries(tmp_path: Path) -> None:
    pieces = [code_entry(arch, small_cubin(arch)) for arch in ("sm_100f", "sm_120f")]
    survive("fat binary", container(*pieces), everything)


def test_shared_objects(tmp_path: Path) -> None:
    names = kernel_name("bf16").encode()
    code = shared_object(container(code_entry("sm_100f", small_cubin("sm_100f"))), names)
    survive("shared object", code, search_in(tmp_path / "x.so"))


def test_wheels(tmp_path: Path) -> None:
    code = store_object(("sm_100f", small_cubin("sm_100f")))
    path = write_wheel(tmp_path / release_name("1.0"), {HOME: code})
    survive("wheel", path.read_bytes(), search_in(path))


def test_wheels_with_members_that_are_stored_as_they_are(tmp_path: Path) -> None:
    code = store_object(("sm_100f", small_cubin("sm_100f")))
    path = write_wheel(tmp_path / release_name("1.0"), {HOME: code}, method=0)
    survive("stored wheel", path.read_bytes(), list_in(path))
