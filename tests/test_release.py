"""Finding and fetching a release's wheel, with a stand-in for pip."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from pathlib import Path

import pytest
from wheels import release_name

from oracle.errors import UsageError
from oracle.subjects import release
from oracle.subjects.release import (
    ArtifactOptions,
    Release,
    parse_release,
    release_wheel,
    versions_at_hand,
    wheels_in,
)

ONE = Release("1.2.3")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a pip that must not be called."""
    monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(release, "PIP", (sys.executable, "-c", "raise SystemExit('pip was run')"))
    return tmp_path / "cache" / "wheels"


def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Let a script stand in for pip; `dest` is where it is to put the wheel of `wanted`."""
    path = tmp_path / "pip.py"
    path.write_text(
        "import pathlib, sys\n"
        "arguments = sys.argv[1:]\n"
        "assert arguments[0] == 'download' and '--no-deps' in arguments, arguments\n"
        "assert '--only-binary=:all:' in arguments, arguments\n"
        "dest = pathlib.Path(arguments[arguments.index('--dest') + 1])\n"
        "wanted = arguments[-1]\n" + script
    )
    monkeypatch.setattr(release, "PIP", (sys.executable, str(path)))


DOWNLOAD = (
    "name, version = wanted.split('==')\n"
    "(dest / f'{name}-{version}-cp38-abi3-manylinux_2_28_x86_64.whl').write_text('fetched')\n"
)


def touch(directory: Path, *names: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text(name)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("vllm==0.33.0", "0.33.0"),
        ("vLLM==0.20.1rc0", "0.20.1rc0"),
        ("vllm==0.1.dev5+g0123abc.cu129", "0.1.dev5+g0123abc.cu129"),
        ("vllm", None),
        ("vllm-0.33.0.whl", None),
        ("store:k=linear,v=linear", None),
        ("flashinfer==0.6", None),
    ],
)
def test_specs_that_name_a_release(spec: str, version: str | None) -> None:
    found = parse_release(spec)
    assert (found.version if found else None) == version
    if found is not None:
        assert str(found) == f"vllm=={version}"


@pytest.mark.parametrize(
    "version", ["", "latest", "1.0 --index-url x", "../1", "1;2", "-1", "1.0\n", "9" * 5000]
)
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(
        UsageError, match=r"names no release: give one such as vllm==0\.33\.0"
    ) as error:
        parse_release(f"vllm=={version}")
    assert "\n" not in str(error.value)


def test_the_best_wheel_of_each_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    touch(
        tmp_path / "w",
        "vllm-1.0-cp38-abi3-manylinux_2_28_aarch64.whl",
        "vllm-1.0-cp38-abi3-manylinux1_x86_64.whl",
        "vllm-1.0-10-cp38-abi3-manylinux1_x86_64.whl",
        "vllm-1.0-2-cp38-abi3-manylinux1_x86_64.whl",
        "vllm-2.0-cp38-abi3-manylinux_2_28_aarch64.whl",
        "vllm-3.0+cu129-cp38-abi3-manylinux1_x86_64.whl",
        "vllm-4.0.tar.gz",
        "vllm_extra-5.0-py3-none-any.whl",
        "vllm-6.0-cp38-abi3-manylinux1_x86_64.whl.part",
    )
    assert {version: path.name for version, path in wheels_in(tmp_path / "w").items()} == {
        "1.0": "vllm-1.0-10-cp38-abi3-manylinux1_x86_64.whl",
        "2.0": "vllm-2.0-cp38-abi3-manylinux_2_28_aarch64.whl",
        "3.0+cu129": "vllm-3.0+cu129-cp38-abi3-manylinux1_x86_64.whl",
    }


def test_a_directory_goes_before_the_cache(tmp_path: Path, cache: Path) -> None:
    name = release_name("1.2.3")
    touch(cache, name, release_name("1.2.2"))
    with release_wheel(ONE, ArtifactOptions()) as wheel:
        assert wheel == cache / name
    touch(tmp_path / "mine", name)
    options = ArtifactOptions(tmp_path / "mine", offline=True)
    with release_wheel(ONE, options) as wheel:
        assert wheel == tmp_path / "mine" / name
    with release_wheel(Release("1.2.2"), options) as wheel:
        assert wheel.parent == cache


def test_offline_says_what_is_at_hand_and_what_to_do(tmp_path: Path) -> None:
    touch(tmp_path / "mine", release_name("1.0"), release_name("1.1"))
    options = ArtifactOptions(tmp_path / "mine", offline=True)
    with (
        pytest.raises(
            UsageError, match=r"no wheel of vllm==1\.2\.3.*there are: 1\.0, 1\.1.*--wheel-dir"
        ),
        release_wheel(ONE, options),
    ):
        pass


def test_a_wheel_directory_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="missing: No such file or directory"),
        release_wheel(ONE, ArtifactOptions(tmp_path / "missing")),
    ):
        pass


def test_a_fetched_wheel_is_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip(monkeypatch, tmp_path, DOWNLOAD)
    said: list[str] = []
    with release_wheel(ONE, ArtifactOptions(notify=said.append)) as wheel:
        assert wheel == cache / release_name("1.2.3")
        assert wheel.read_text() == "fetched"
    assert said == ["fetching vllm==1.2.3 with pip: a few hundred megabytes"]
    assert os.listdir(cache) == [release_name("1.2.3")]
    with release_wheel(ONE, ArtifactOptions(offline=True)) as again:
        assert again == wheel


# What pip prints -> what the user reads of it.
FAILURES = {
    "ERROR: Could not find a version that satisfies the requirement vllm==1.2.3 (from versions: "
    "0.1, 0.2)\nERROR: No matching distribution found for vllm==1.2.3": "No matching distribution",
    "WARNING: Retrying (Retry(total=1)) after connection broken by NewConnectionError\n"
    "ERROR: Could not find a version that satisfies the requirement vllm==1.2.3 (from versions: "
    "none)\nERROR: No matching distribution found for vllm==1.2.3": "no package index answered",
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n": (
        "No space left on device"
    ),
    "/usr/bin/python: No module named pip": "No module named pip",
    "": "pip gave no reason",
}


@pytest.mark.parametrize("printed", FAILURES)
def test_a_failed_download_is_one_line(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    pip(
        monkeypatch,
        tmp_path,
        "(dest / 'vllm-1.2.3-partial').write_text('')\n"
        f"sys.stderr.write({printed!r})\nsys.exit(1)\n",
    )
    with pytest.raises(UsageError) as error, release_wheel(ONE, ArtifactOptions()):
        pass
    message = str(error.value)
    assert message.startswith("vllm==1.2.3 could not be fetched: ")
    assert FAILURES[printed] in message
    assert "--wheel-dir" in message
    assert "\n" not in message
    assert os.listdir(cache) == []


def test_a_pip_that_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, tmp_path, "")
    with pytest.raises(UsageError, match="left no wheel"), release_wheel(ONE, ArtifactOptions()):
        pass


def test_a_pip_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "PIP", ("/nonexistent/python", "-m", "pip"))
    with (
        pytest.raises(UsageError, match="pip cannot be run"),
        release_wheel(ONE, ArtifactOptions()),
    ):
        pass


@pytest.mark.parametrize("how", ["under a file", "renaming fails"])
def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "under a file":
        (tmp_path / "file").touch()
        monkeypatch.setenv("LAYOUT_ORACLE_CACHE", str(tmp_path / "file" / "cache"))
    else:

        def fail(*paths: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "replace", fail)
    pip(monkeypatch, tmp_path, DOWNLOAD)
    said: list[str] = []
    with release_wheel(ONE, ArtifactOptions(notify=said.append)) as wheel:
        assert wheel.read_text() == "fetched"
    assert not wheel.exists()
    assert not wheel.parent.exists()
    assert any("cannot be written" in line and "not kept" in line for line in said)


def test_nowhere_to_fetch_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    with (
        pytest.raises(UsageError, match=r"nowhere to fetch a wheel to.*No space left.*TMPDIR"),
        release_wheel(ONE, ArtifactOptions()),
    ):
        pass


def test_a_release_of_another_package(tmp_path: Path, cache: Path) -> None:
    one = parse_release("FlashInfer_cubin==0.6.13", "flashinfer-cubin")
    assert one == Release("0.6.13", "flashinfer-cubin")
    assert parse_release("flashinfer-cubin==0.6.13") is None
    touch(
        tmp_path / "w",
        "flashinfer_cubin-0.6.13-py3-none-any.whl",
        "flashinfer_python-0.6.13-py3-none-any.whl",
        release_name("1.2.3"),
    )
    options = ArtifactOptions(tmp_path / "w", offline=True)
    assert versions_at_hand(options, "flashinfer-cubin") == ["0.6.13"]
    assert versions_at_hand(options) == ["1.2.3"]
    with release_wheel(one, options) as wheel:
        assert wheel.name == "flashinfer_cubin-0.6.13-py3-none-any.whl"
    with (
        pytest.raises(UsageError, match=r"no wheel of flashinfer-cubin==0\.6\.12 is at hand"),
        release_wheel(Release("0.6.12", "flashinfer-cubin"), options),
    ):
        pass


def test_a_fetched_wheel_that_is_not_to_be_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip(monkeypatch, tmp_path, DOWNLOAD)
    with release_wheel(ONE, ArtifactOptions(keep=False)) as wheel:
        assert wheel.read_text() == "fetched"
    assert os.listdir(cache) == []
