"""`numerics`: whether writers store the right values, bit by bit or within what is open."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from oracle.commands.results import write_results
from oracle.commands.streams import subjects_speak_on_stderr
from oracle.machine.context import Unsupported
from oracle.machine.primitives import RCP_MODELS
from oracle.machine.reciprocal_table import TABLE_PREFIX, rcp_model
from oracle.numerics.conformance import NOT_RUN, Conformance, examine, exit_code
from oracle.numerics.document import document
from oracle.numerics.models import under_model
from oracle.numerics.sections import conformance_entry, conformance_sections
from oracle.quantize import Reciprocal
from oracle.report import terminal
from oracle.report.document import TOOL, dump
from oracle.report.markdown import as_markdown
from oracle.subjects.base import Writer
from oracle.subjects.spec import writers_from_specs

SCHEMA_VERSION = "1.0"
DEFAULT_WRITERS = ("store-sm100", "store-sm100:search=4over6")
DEFAULT_ARCHS = ("sm_90", "sm_100a", "sm_120a")
"""Where E2M1 and E4M3 are converted in software, and natively, by either generation's code."""
DEFAULT_DTYPES = ("bf16",)
DEFAULT_GROUPS = 100_000


def run(arguments: argparse.Namespace) -> int:
    """Judge the writers, or write the document; raises OracleError for what is asked in vain."""
    models = _models(arguments.rcp_model)
    dtypes = tuple(dict.fromkeys(arguments.dtype or ()))
    with subjects_speak_on_stderr():
        writers = writers_from_specs(
            arguments.writers or DEFAULT_WRITERS,
            arguments.arch or DEFAULT_ARCHS,
            dtypes or DEFAULT_DTYPES,
        )
        if arguments.docs is not None:
            write_results({Path(arguments.docs): document(writers if arguments.writers else ())})
            return 0
        results = [
            _examine(writer, dtype, arguments.groups or DEFAULT_GROUPS, arguments.rcp_model, models)
            for writer in writers
            for dtype in _dtypes(writer, dtypes)
        ]
    code = exit_code(results)
    if arguments.markdown is not None:
        text = as_markdown("Values stored by NVFP4 writers", conformance_sections(results))
        write_results({Path(arguments.markdown): text})
    if arguments.json:
        sys.stdout.write(_json(results, arguments.rcp_model, code))
    else:
        terminal.show(conformance_sections(results), terminal.console())
    return code


def _dtypes(writer: Writer, asked: Sequence[str]) -> Sequence[str]:
    """What a writer is judged on: what was asked for of what it takes; by default the one type it
    is built for, or bf16 where it takes several."""
    taken = writer.info.dtypes
    if not asked and len(taken) == 1:
        return taken
    return [dtype for dtype in asked or DEFAULT_DTYPES if dtype in taken]


def _models(name: str) -> dict[str, Reciprocal]:
    """What bit-exactness is tried under: every named model, and the table where one is given."""
    models: dict[str, Reciprocal] = dict(RCP_MODELS)
    chosen = rcp_model(name)
    if name.startswith(TABLE_PREFIX):
        models["table"] = chosen
    return models


def _examine(
    writer: Writer, dtype: str, groups: int, model: str, models: dict[str, Reciprocal]
) -> Conformance:
    try:
        modelled = under_model(writer, model)
    except Unsupported as error:
        return Conformance(writer.info, dtype, NOT_RUN, reason=str(error))
    return examine(modelled, dtype, groups, models)


def _json(results: Sequence[Conformance], model: str, code: int) -> str:
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": TOOL,
            "rcp_model": model,
            "writers": [conformance_entry(result) for result in results],
            "exit_code": code,
        }
    )
