"""The options of the suite, who is tested, and what a run says before and after."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from expectations import expectations
from hypothesis import settings
from suite import SUITE, Suite

import oracle
from oracle.arguments.values import head_size, list_of, one_of, up_to, word
from oracle.errors import NothingRan, OracleError, UsageError
from oracle.formats import DTYPES
from oracle.geometry import CACHE_LAYOUTS
from oracle.properties.builds import writers_of
from oracle.properties.case import MAX_SIZES
from oracle.properties.promises import PROMISES
from oracle.properties.strategies import BLOCK_SIZES, HEAD_SIZES, NUM_HEADS, Limits
from oracle.subjects.base import SubjectInfo
from oracle.subjects.release import ArtifactOptions
from oracle.subjects.spec import readers_from_specs
from oracle.text import enumerated, printable
from oracle.toolchain import tool_versions

HERE = Path(__file__).parent
FAILURES = Path("reports", "out", "cases")
"""Below the current directory: whoever runs the suite finds the cases in their own project."""
MOST_EXAMPLES = 1_000_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; those that the command line has as well mean the same."""
    add = parser.getgroup("layout-oracle").addoption
    add("--subject", type=word, default="store-sm100", metavar="WRITER",
        help="the writer to test, as for `harness.py verdict` (default: %(default)s)")  # fmt: skip
    add("--reader", type=word, metavar="READER",
        help="a reader that must look for the scales where the writer stores them")  # fmt: skip
    add("--max-examples", type=up_to(MOST_EXAMPLES), default=100, metavar="N",
        help="cases for each promise (default: %(default)s)")  # fmt: skip
    add("--derandomize", action="store_true", help="try the same cases in every run")
    for option, parse, metavar, text in (
        ("--arch", word, "ARCH", "build the store kernel for this, or take it of an artefact"),
        ("--dtype", one_of(*DTYPES), "bf16,fp16", "type of the values stored (default: bf16)"),
        ("--head-size", head_size, "SIZE", "draw these head sizes only"),
        ("--num-heads", up_to(MAX_SIZES["num_heads"]), "COUNT", "draw these numbers of heads only"),
        ("--block-size", up_to(MAX_SIZES["block_size"]), "TOKENS", "draw these page sizes only"),
        ("--cache-layout", one_of(*CACHE_LAYOUTS), "NHD,HND", "draw these cache layouts only"),
    ):
        add(option, action="extend", type=list_of(parse), default=[], metavar=metavar, help=text)
    add("--wheel-dir", type=Path, metavar="DIR", help="take the wheels of releases from here")
    add("--offline", action="store_true", help="never fetch a release that is not at hand")
    add("--expected", type=Path, default=HERE / "expected", metavar="DIR",
        help="the files of expected failures (default: cases/expected)")  # fmt: skip
    add("--failures", type=Path, default=FAILURES, metavar="DIR",
        help="where failing cases are written (default: %(default)s)")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Make the subjects. A spec that will not do ends the run with one line."""
    with _in_one_line():
        config.stash[SUITE] = _suite(config)


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except NothingRan as error:
        pytest.exit(printable(str(error)), returncode=error.exit_code)
    except OracleError as error:
        raise pytest.UsageError(printable(str(error))) from None


def _suite(config: pytest.Config) -> Suite:
    option = config.getoption
    options = ArtifactOptions(wheel_dir=option("--wheel-dir"), offline=option("--offline"))
    spec, reader = option("--subject"), option("--reader")
    dtypes = tuple(dict.fromkeys(option("--dtype"))) or ("bf16",)
    writers = writers_of(spec, option("--arch"), dtypes, options)
    readers = readers_from_specs([] if reader is None else [reader], options)
    if len(readers) > 1:
        ids = enumerated((each.info.id for each in readers), "or")
        raise UsageError(f"{reader} names {len(readers)} readers: give {ids}")
    return Suite(
        spec=spec,
        writers=tuple(writer for writer in writers if set(dtypes) & set(writer.info.dtypes)),
        reader_spec=reader,
        reader=readers[0] if readers else None,
        dtypes=dtypes,
        limits=Limits(
            head_sizes=option("--head-size") or HEAD_SIZES,
            num_heads=option("--num-heads") or NUM_HEADS,
            block_sizes=option("--block-size") or BLOCK_SIZES,
            cache_layouts=option("--cache-layout") or CACHE_LAYOUTS,
        ),
        chosen=settings(
            deadline=None, max_examples=option("--max-examples"), print_blob=False,
            derandomize=option("--derandomize"),
        ),
        expected=tuple(expectations(option("--expected"))),
        failures=option("--failures"),
        options=options,
    )  # fmt: skip


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Who is tested, and with what."""
    suite = config.stash[SUITE]
    lines = [_in_words("subject", writer.info) for writer in suite.writers]
    if suite.reader is not None:
        lines.append(_in_words("reader", suite.reader.info))
    for each in suite.expected:
        if any(suite.concerned(each, writer) for writer in suite.writers):
            lines.append(f"expected failures: {each.path.name}")
    tools = {"layout-oracle": oracle.__version__, "numpy": np.__version__, **tool_versions()}
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in tools.items())
    return [*map(printable, lines), f"with: {versions}, Python {platform.python_version()}"]


def _in_words(role: str, info: SubjectInfo) -> str:
    arch = f", {info.arch}" if info.arch else ""
    declared = ", ".join(f"{side} {layout}" for side, layout in info.declared.items())
    return (
        f"{role}: {info.id}, executor {info.executor}{arch}, {' and '.join(info.dtypes)}, "
        f"declared {declared or 'nothing'}"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a promise, and a writer where the subject is several."""
    suite = metafunc.config.stash[SUITE]
    several = len(suite.writers) > 1
    metafunc.parametrize(
        ("promise", "writer"),
        [
            pytest.param(
                promise, writer, id=f"{name}-{printable(writer.info.id)}" if several else name
            )
            for writer in suite.writers
            for name, promise in PROMISES.items()
        ],
    )


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> Suite:
    """What is run."""
    return pytestconfig.stash[SUITE]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where every promise was skipped nothing ran, which is no success."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    # Processes of a parallel run have none; it is for the one that started them to say.
    if reporter is not None and "skipped" in reporter.stats:
        ran = {"passed", "failed", "error", "xfailed"} & reporter.stats.keys()
        if not ran:
            session.exitstatus = NothingRan.exit_code
