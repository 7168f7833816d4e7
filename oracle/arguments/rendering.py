"""The commands that show what was judged before."""

from __future__ import annotations

from oracle.arguments.common import Commands, add_command
from oracle.arguments.values import word


def add_report(commands: Commands) -> None:
    """Add `report`."""
    parser = add_command(
        commands,
        "report",
        "show a verdict.json again: as text, a page, Markdown or JUnit XML",
        "Nothing is executed, and nothing in the file is believed before it is checked. Exits with "
        "0 where the report was written, whatever the verdict is; with 2 where the file is none.",
    )
    parser.add_argument(
        "verdict", type=word, metavar="VERDICT.json",
        help="what `verdict --output` or `verdict --json` wrote; - reads standard input",
    )  # fmt: skip
    for option, what in (
        ("--html", "a page that needs nothing beside it, with every scale plane drawn"),
        ("--markdown", "what verdict.md holds"),
        ("--junit", "a test case for each finding and agreement, for a CI system"),
    ):
        parser.add_argument(
            option, type=word, metavar="FILE", help=f"write {what}; - is standard output"
        )
