"""What gets installed: one import package, with the kernel's source inside."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    pytest.importorskip("hatchling", reason="hatchling, the build backend, is not installed")
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_installs_one_import_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"oracle"}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "oracle").rglob("*.py")}
    assert sources <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_the_wheel_carries_the_style_and_the_script_of_the_page(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    for name in ("oracle/report/html/page.css", "oracle/report/html/page.js"):
        assert archive.read(name) == (ROOT / name).read_bytes()


def test_the_wheel_carries_kernel_contracts_licence_and_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    kernel = archive.read("oracle/_kernels/nvfp4_kv_store.cu")
    assert kernel == (ROOT / "kernels" / "nvfp4_kv_store.cu").read_bytes()
    assert "oracle/contracts.toml" in archive.namelist()
    (licence,) = (name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (commands,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "layout-oracle = oracle.cli:main" in archive.read(commands).decode()


def test_an_installed_copy_runs_beside_a_package_called_kernels(
    wheel: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "kernels").mkdir()
    (site / "kernels" / "__init__.py").write_text("OWNER = 'somebody else'")
    (site / "kernels" / "nvfp4_kv_store.cu").write_text("not ours")
    code = (
        "import kernels, oracle\n"
        "from oracle.cli import main\n"
        "from oracle.toolchain import kernel_source\n"
        "assert kernels.OWNER == 'somebody else'\n"
        f"assert oracle.__file__.startswith({str(site)!r})\n"
        "assert '__global__' in kernel_source('nvfp4_kv_store')\n"
        "raise SystemExit(main(['verdict', 'store', '--head-size', '64', '--block-size', '16']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "as declared" in done.stdout


def test_kernels_is_no_import_package() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()


def test_ci_runs_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    lines = script.read_text().splitlines()
    assert "make test" in lines
    assert "set -euo pipefail" in lines
