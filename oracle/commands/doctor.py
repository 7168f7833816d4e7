"""`doctor`: what can run here, and with which versions."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oracle import __version__, toolchain
from oracle.cuda.process import find_device
from oracle.errors import OracleError
from oracle.report import terminal
from oracle.report.document import dump
from oracle.report.outline import Cell, Paragraph, Section, Table, Tone
from oracle.run import DEFAULT_DOMAIN
from oracle.subjects.binary import MachineWriter
from oracle.subjects.spec import writers_from_specs
from oracle.text import enumerated, printable

_NOTHING_RAN = 5


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is there, and a word about it."""

    name: str
    ok: bool
    detail: str
    needed: bool = True


def run(arguments: argparse.Namespace) -> int:
    """Print the checks; 0 where the default verdict can run, else 5."""
    checks = examine()
    able = all(check.ok for check in checks if check.needed)
    if arguments.json:
        listed = [vars(check) for check in checks]
        sys.stdout.write(dump({"able": able, "checks": listed}))
    else:
        terminal.show(_sections(checks, able), terminal.console())
    return 0 if able else _NOTHING_RAN


def examine() -> list[Check]:
    """Every check, in the order in which one thing needs another."""
    return [
        Check("layout-oracle", True, __version__),
        Check("Python", sys.version_info >= (3, 11), platform.python_version()),
        Check("NumPy", True, np.__version__),
        _attempt("NVRTC", _nvrtc),
        _attempt("CUDA headers", lambda: str(toolchain.include_dir())),
        _attempt("nvdisasm", lambda: str(toolchain.nvdisasm_path())),
        _attempt("machine", _machine),
        _cache(),
        _gpu(),
    ]


def _attempt(name: str, look: Callable[[], str]) -> Check:
    """A check that passes unless looking raises."""
    try:
        return Check(name, True, look())
    except (OracleError, OSError) as error:
        return Check(name, False, str(error))


def _nvrtc() -> str:
    archs = toolchain.supported_archs()
    version = toolchain.tool_versions()[toolchain.NVRTC_PACKAGE]
    return f"{version}, for {', '.join(archs)}"


def _machine() -> str:
    """Compile and lower the store kernel under each contract, as the default verdict does."""
    writers = writers_from_specs(["store"], (), DEFAULT_DOMAIN.dtypes)
    programs = [writer.program for writer in writers if isinstance(writer, MachineWriter)]
    archs = dict.fromkeys(program.function.arch for program in programs)
    return f"executes the store kernel for {enumerated(archs)}"


def _cache() -> Check:
    """The cache only saves time: without it everything is compiled anew."""
    directory = toolchain.cache_dir()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    usable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    detail = str(directory) if usable else f"{directory} cannot be written to"
    return Check("cache", usable, detail, needed=False)


def _gpu() -> Check:
    """Whether the CUDA driver gives a GPU; the default verdict needs none."""
    try:
        return Check("GPU", True, find_device().in_words(), needed=False)
    except OracleError as error:
        return Check("GPU", False, str(error), needed=False)


def _sections(checks: list[Check], able: bool) -> list[Section]:
    told = (
        Cell("The default verdict can run here.", Tone.GOOD)
        if able
        else Cell("The default verdict cannot run here.", Tone.BAD)
    )
    return [
        Table(
            "What is here",
            ("what", "state", "detail"),
            tuple(
                (Cell(check.name), _state(check), Cell(printable(check.detail))) for check in checks
            ),
        ),
        Paragraph((told,)),
    ]


def _state(check: Check) -> Cell:
    if check.ok:
        return Cell("ok", Tone.GOOD)
    return Cell("missing", Tone.BAD) if check.needed else Cell("not here", Tone.QUIET)
