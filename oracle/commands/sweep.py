"""`sweep`: execute every attention kernel of a wheel, and publish what each reads."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from oracle import __version__
from oracle.commands.progress import progress_on_stderr, say_how_to_narrow
from oracle.commands.results import write_results
from oracle.commands.verdict import artifact_options
from oracle.errors import UsageError
from oracle.files import open_regular
from oracle.report import scalelayout, terminal
from oracle.report.markdown import as_markdown
from oracle.report.sweeptable import sections
from oracle.run import default_jobs
from oracle.subjects.flashinfer import kernel_names, parse_source, wheel_of
from oracle.subjects.spec import writers_from_specs
from oracle.sweep import KeptRows, Row, sweep
from oracle.text import printable

TITLE = "What the attention kernels read"
DOCS_TITLE = "K scale layout"
_MAX_TIMELINE_BYTES = 16 << 20


def run(arguments: argparse.Namespace) -> int:
    """Run or go on with a sweep; raises OracleError for what the arguments ask in vain."""
    source = parse_source(arguments.spec)
    if source is None:
        raise UsageError(f"{arguments.spec} names no wheel: give flashinfer-cubin==X or PATH.whl")
    what = arguments.spec.partition(":")[0]
    releases = _summary(Path(arguments.timeline)) if arguments.timeline is not None else []
    with wheel_of(source, artifact_options(arguments)) as path, progress_on_stderr() as progress:
        say_how_to_narrow(what, kernel_names(path, source.pattern))
        rows = sweep(
            path,
            KeptRows(),
            pattern=source.pattern,
            jobs=arguments.jobs or default_jobs(),
            progress=progress,
        )
    if arguments.json:
        sys.stdout.write(as_json(rows, what))
    else:
        terminal.show(sections(rows, what), terminal.console())
    if arguments.output is not None:
        publish(rows, what, Path(arguments.output))
    if arguments.docs is not None:
        command = f"layout-oracle sweep {what} --docs {arguments.docs}"
        if arguments.timeline is not None:
            command += f" --timeline {arguments.timeline}"
        writers = writers_from_specs(["store"], (), ("bf16",))
        text = as_markdown(DOCS_TITLE, scalelayout.sections(rows, writers, what, command, releases))
        write_results({Path(arguments.docs): text})
    return int(not all(row.as_declared for row in rows))


def _summary(path: Path) -> list[str]:
    """The sentences that sum up a timeline. Raises UsageError where the file is none."""
    try:
        with open_regular(path) as file:
            sentences = json.loads(file.read(_MAX_TIMELINE_BYTES))["summary"]
        return [printable(str(sentence)) for sentence in sentences]
    except OSError as error:
        raise UsageError(f"--timeline {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"--timeline {path}: this is no timeline's JSON") from error


def publish(rows: list[Row], what: str, directory: Path) -> None:
    """Write the rows and their table into a directory, under the name of what was swept."""
    name = "".join(
        c if c.isalnum() or c in ".-" else "-" for c in Path(what).name.replace("==", "-")
    )
    table = as_markdown(TITLE, sections(rows, what))
    write_results(
        {
            directory / f"{name}.readers.json": as_json(rows, what),
            directory / f"{name}.readers.md": table,
        },
        directory,
    )


def as_json(rows: list[Row], what: str) -> str:
    """The rows as a JSON document; how long each took is left out."""
    document = {
        "tool": {"name": "layout-oracle", "version": __version__},
        "source": what,
        "rows": [{k: v for k, v in asdict(row).items() if k != "seconds"} for row in rows],
    }
    return json.dumps(document, indent=1) + "\n"
