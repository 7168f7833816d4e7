"""Reading wheels, directories and binaries: what they hold, and everything that can be wrong."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from wheels import HOME, write_wheel

from oracle.errors import UsageError
from oracle.subjects.archive import CHUNK_BYTES, ArchiveLimits, Member, open_artefact, shown

TEXT = os.urandom(3 * CHUNK_BYTES + 17)
# Offsets of fields in an entry of a zip's table of contents.
FLAGS, METHOD, CRC, PACKED, SIZE = (8, "<H"), (10, "<H"), (16, "<I"), (20, "<I"), (24, "<I")


def patch(path: Path, member: str, field: tuple[int, str], value: int) -> None:
    """Overwrite a field of a member's entry in the table of contents."""
    data = bytearray(path.read_bytes())
    name = member.encode()
    start = data.rfind(b"PK\1\2", 0, data.rfind(name))
    assert data[start + 46 : start + 46 + len(name)] == name
    struct.pack_into(field[1], data, start + field[0], value)
    path.write_bytes(data)


def read(path: Path, limits: ArchiveLimits | None = None) -> dict[str, bytes]:
    """Every member by name, each compared with what streamed by."""
    found = {}
    with open_artefact(path, limits) as artefact:
        for member in artefact.members:
            pieces: list[bytes] = []
            found[member.name] = bytes(artefact.contents(member, pieces.append))
            assert b"".join(pieces) == found[member.name]
            assert len(found[member.name]) == member.size
    return found


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wheel_gives_its_shared_objects(tmp_path: Path, method: int) -> None:
    members = {HOME: TEXT, "vllm/small.so": b"x"}
    assert read(write_wheel(tmp_path / "a.whl", members, method)) == members


def test_a_directory_gives_those_at_its_top(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "vllm"
    (package / "deep").mkdir(parents=True)
    for name in ("_C.abi3.so", "other.so", "notes.txt", "deep/hidden.so"):
        (package / name).write_bytes(TEXT)
    expected = {"_C.abi3.so": TEXT, "other.so": TEXT}
    assert read(package) == read(package.parent) == expected


def test_a_file_is_its_own_member(tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(TEXT)
    assert read(path) == {"k.cubin": TEXT}


def test_members_are_known_by_size_and_checksum(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: b"123456789"})
    with open_artefact(path) as artefact:
        assert (artefact.kind, artefact.members) == ("wheel", (Member(HOME, 9, 0xCBF43926),))


@pytest.mark.parametrize(
    "name",
    [
        "../x.so",
        "vllm/../../x.so",
        "/etc/x.so",
        "\\x.so",
        "..\\x.so",
        "C:\\x.so",
        "vllm/..",
        "a\0b",
    ],
)
def test_names_that_leave_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})
    # zipfile itself repairs some of these names on writing, so they are put in afterwards.
    stand_in = "q" * len(name)
    write_wheel(path, {HOME: TEXT, stand_in: b"x"})
    data = path.read_bytes().replace(stand_in.encode(), name.encode())
    path.write_bytes(data)
    with pytest.raises(UsageError, match="leaves its directory"):
        read(path)


def test_names_with_dots_in_them_are_not(tmp_path: Path) -> None:
    assert read(write_wheel(tmp_path / "a.whl", {"vllm/..x.so": b"1", "a..b/c.so": b"2"}))


@pytest.mark.parametrize("keep", [0, 2, 3, 30, 1000, -1, -10, -23])
def test_truncated_wheels(tmp_path: Path, keep: int) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT[:5000]})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UsageError, match=r"is empty|is a damaged or truncated wheel: \w"):
        read(path)


def test_a_damaged_member(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.find(TEXT[:64]) + len(TEXT) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="damaged or truncated: Bad CRC-32"):
        read(path)


def test_a_member_cut_short_inside(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})
    patch(path, HOME, PACKED, len(TEXT) // 2)
    with pytest.raises(UsageError, match=r"damaged or truncated|not of the size"):
        read(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (SIZE, len(TEXT) - 1, "damaged or truncated: Bad CRC-32"),
        (SIZE, len(TEXT) + 1, "not of the size that the archive claims"),
        (SIZE, 0xFFFFFFFE, "claims 4294967294 bytes: more than"),
        (CRC, 1, "damaged or truncated: Bad CRC-32"),
        (FLAGS, 1, "is encrypted"),
        (METHOD, zipfile.ZIP_LZMA, "compressed with method 14"),
        (METHOD, 99, "compressed with method 99"),
        (PACKED, 0xFFFFFFF0, "past the end of the file"),
    ],
)
def test_entries_that_lie(tmp_path: Path, field: tuple[int, str], value: int, message: str) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})
    patch(path, HOME, field, value)
    with pytest.raises(UsageError, match=message):
        read(path)


def test_a_bomb_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: bytes(300 << 20)})
    watched: list[bytes] = []
    start = time.perf_counter()
    with open_artefact(path) as artefact, pytest.raises(UsageError, match="no shared object does"):
        artefact.contents(artefact.members[0], watched.append)
    assert time.perf_counter() - start < 1
    assert not watched


def test_sizes_have_limits(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})
    for limits, message in (
        (ArchiveLimits(members=2), "has 3 members: more than the 2 allowed"),
        (ArchiveLimits(directory_bytes=100), "table of contents is larger than 100 bytes"),
        (ArchiveLimits(member_bytes=1000), f"claims {len(TEXT)} bytes: more than the 1000"),
    ):
        with pytest.raises(UsageError, match=message):
            read(path, limits)
    binary = tmp_path / "a.so"
    binary.write_bytes(TEXT)
    with pytest.raises(UsageError, match="more than the 1000"):
        read(binary, ArchiveLimits(member_bytes=1000))
    with pytest.raises(UsageError, match="more than the 1000"):
        read(tmp_path, ArchiveLimits(member_bytes=1000))


def test_the_table_of_contents_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    """An end record that claims a table of gigabytes, with the bytes to back it up."""
    path = tmp_path / "a.whl"
    claimed = 200 << 20
    with path.open("wb") as file:
        file.write(b"PK\3\4")
        file.seek(claimed)
        file.write(struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 65535, 65535, claimed, 0, 0))
    start = time.perf_counter()
    with pytest.raises(UsageError, match="table of contents is larger than"):
        read(path)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("what", ["nothing", "pipe", "empty.so", "empty.whl"])
def test_paths_that_are_no_artefact(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "pipe":
        os.mkfifo(path)
    elif what != "nothing":
        path.touch()
    message = {
        "nothing": "No such file",
        "pipe": "neither a file nor a directory",
        "empty.so": "is empty",
        "empty.whl": "is empty",
    }[what]
    with pytest.raises(UsageError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A temporary file on a disk that has no room left."""

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *args: object) -> None:
            pass

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})

    def full(**options: Any) -> Full:
        return Full()

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(UsageError, match=r"No space left on device\): set TMPDIR"):
        read(path)


def test_errors_of_the_caller_pass_through(tmp_path: Path) -> None:
    path = write_wheel(tmp_path / "a.whl", {HOME: TEXT})
    with pytest.raises(FileNotFoundError, match="mine"), open_artefact(path):
        raise FileNotFoundError("mine")


def test_names_are_shown_on_one_line() -> None:
    assert shown("vllm/_C.abi3.so") == "vllm/_C.abi3.so"
    assert shown("a\nb\x1b[31m") == r"'a\nb\x1b[31m'"
    assert len(shown("x" * 5000)) < 200
