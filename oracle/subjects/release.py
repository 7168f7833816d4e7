"""A release of a package by its number: where its wheel is, or how it is fetched.

A wheel is looked for in a directory the user names, then in the user's cache. Only then is it
fetched, by pip in a process of its own, without dependencies and without running anything of the
package; `--offline` forbids that. A cache that cannot be written only costs fetching it again.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oracle.diskcache import cache_dir
from oracle.errors import UsageError
from oracle.subjects.archive import shown

PACKAGE = "vllm"
"""The package that is meant where none is named."""
PACKAGES = {PACKAGE: "0.33.0", "flashinfer-cubin": "0.6.13"}
"""The packages whose releases can be named, each with one that exists."""
PIP = (sys.executable, "-m", "pip")

# name-version[-build]-python-abi-platform.whl, as the wheel specification has it.
_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-(?P<build>[0-9]+)[^-]*)?-[^-]+-[^-]+"
    r"-(?P<platform>[^-]+)\.whl"
)
# No longer than 64 characters: its numbers are compared as such.
_VERSION = re.compile(r"(?!.{65})[0-9]+(?:\.[0-9]+)*[A-Za-z0-9.]*(?:\+[A-Za-z0-9.]+)?")


def _say_nothing(line: str) -> None:
    """Nobody wants to hear of progress."""


@dataclass(frozen=True)
class ArtifactOptions:
    """Where wheels may come from, and who is told (a line of text) that something takes long.

    `keep` is whether a wheel that was fetched stays in the cache.
    """

    wheel_dir: Path | None = None
    offline: bool = False
    keep: bool = True
    notify: Callable[[str], None] = _say_nothing


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package, such as 0.33.0."""

    version: str
    package: str = PACKAGE

    def __str__(self) -> str:
        """The requirement that pip understands."""
        return f"{self.package}=={self.version}"


def parse_release(spec: str, package: str = PACKAGE) -> Release | None:
    """The release that a spec such as "vllm==0.33.0" names; None where it names no release of it.

    Raises UsageError for a version that is none.
    """
    name, equals, version = spec.partition("==")
    if not equals or name.strip().lower().replace("_", "-") != package:
        return None
    if not _VERSION.fullmatch(version):
        example = f"{package}=={PACKAGES[package]}"
        raise UsageError(f"{shown(spec)} names no release: give one such as {example}")
    return Release(version, package)


def wheels_in(directory: Path, package: str = PACKAGE) -> dict[str, Path]:
    """Version -> wheel of every release whose wheel stands in a directory.

    Of several wheels of one release the one for this machine's processor goes first, then the
    latest build. Raises UsageError where the directory cannot be read.
    """
    best: dict[str, tuple[tuple[bool, int, str], Path]] = {}
    try:
        paths = list(directory.iterdir())
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror or error}") from error
    for path in paths:
        found = _WHEEL.fullmatch(path.name)
        if found is None or found["name"] != package.replace("-", "_"):
            continue
        here = found["platform"].endswith(platform.machine().lower())
        rank = (here, int(found["build"] or 0), path.name)
        if found["version"] not in best or rank > best[found["version"]][0]:
            best[found["version"]] = (rank, path)
    return {version: path for version, (_, path) in best.items()}


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, in which releases are ordered."""
    return tuple(map(int, re.findall(r"[0-9]+", version)))


def versions_at_hand(options: ArtifactOptions, package: str = PACKAGE) -> list[str]:
    """The releases whose wheels need no fetching, oldest first."""
    return sorted(wheels_at_hand(options, package), key=version_key)


def published_versions(package: str = PACKAGE) -> list[str]:
    """The final releases that the package index has, oldest first. Raises UsageError."""
    command = [*PIP, "index", "versions", package, "--no-input", "--disable-pip-version-check"]
    done = _pip(command)
    listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        raise UsageError(
            f"releases of {package} cannot be listed: {_complaint(done.stderr)}; with --offline "
            "those at hand are taken"
        )
    return sorted(listed[1].split(", "), key=version_key)


@contextmanager
def release_wheel(release: Release, options: ArtifactOptions) -> Iterator[Path]:
    """The wheel of a release, there for as long as the context is open.

    Raises UsageError where it is not at hand and cannot or may not be fetched.
    """
    known = wheels_at_hand(options, release.package)
    if release.version in known:
        yield known[release.version]
        return
    if options.offline:
        have = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"no wheel of {release} is at hand (there are: {have}) and --offline forbids fetching "
            f"it: put it in a directory and name that with --wheel-dir"
        )
    with _fetching_place(options) as (folder, kept):
        options.notify(f"fetching {release} with pip: a few hundred megabytes")
        wheel = _fetch(release, folder)
        yield _keep(wheel, kept, options) if options.keep else wheel


def wheels_at_hand(options: ArtifactOptions, package: str = PACKAGE) -> dict[str, Path]:
    """Version -> wheel, from the directory given and the cache; the directory goes first."""
    cache = _wheel_cache()
    known = wheels_in(cache, package) if os.access(cache, os.R_OK | os.X_OK) else {}
    if options.wheel_dir is not None:
        known |= wheels_in(options.wheel_dir, package)
    return known


def _wheel_cache() -> Path:
    return cache_dir() / "wheels"


@contextmanager
def _fetching_place(options: ArtifactOptions) -> Iterator[tuple[Path, Path | None]]:
    """A new directory to fetch into, and the cache the wheel goes to, if there is one to write."""
    cache = _wheel_cache()
    kept: Path | None = cache
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = tempfile.mkdtemp(dir=cache, prefix=".fetching-")
    except OSError as error:
        options.notify(f"{cache} cannot be written ({error.strerror}): the wheel is not kept")
        kept, folder = None, _temporary_folder()
    try:
        yield Path(folder), kept
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix="layout-oracle-")
    except OSError as error:
        raise UsageError(
            f"there is nowhere to fetch a wheel to ({error.strerror or error}): set TMPDIR or "
            "LAYOUT_ORACLE_CACHE to a directory with room, or give --wheel-dir"
        ) from error


def _fetch(release: Release, folder: Path) -> Path:
    command = [
        *PIP, "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet",
        "--disable-pip-version-check", "--retries", "2", "--dest", str(folder), str(release),
    ]  # fmt: skip
    done = _pip(command)
    if done.returncode:
        raise UsageError(
            f"{release} could not be fetched: {_complaint(done.stderr)}; if you have its wheel, "
            "name its directory with --wheel-dir"
        )
    wheels = wheels_in(folder, release.package)
    if len(wheels) != 1:
        raise UsageError(f"{release} could not be fetched: pip left no wheel of it")
    return next(iter(wheels.values()))


def _pip(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise UsageError(f"pip cannot be run ({error.strerror}): give --wheel-dir") from error


def _complaint(output: str) -> str:
    """Why pip failed, in the one of its lines that says so."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("(from versions: none)" in line for line in lines):
        return "no package index answered, or none has it for this Python and platform"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return shown((errors or lines or ["pip gave no reason"])[-1])


def _keep(wheel: Path, cache: Path | None, options: ArtifactOptions) -> Path:
    """Move a fetched wheel into the cache, whole or not at all; where it is from then on."""
    if cache is None:
        return wheel
    kept = cache / wheel.name
    try:
        os.replace(wheel, kept)
    except OSError as error:
        options.notify(f"{cache} cannot be written ({error.strerror}): the wheel is not kept")
        return wheel
    return kept
