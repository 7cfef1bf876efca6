"""Installation of the package with a compiler and without one, from a copy of its source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from stepscope.native_library import find_compiler, find_libraries
from tests.support.kineto_files import trace, training

pytest.importorskip("hatchling", reason="hatchling, which builds wheels, is not installed")
pytest.importorskip("pip", reason="pip, which installs wheels, is not installed")

pytestmark = pytest.mark.extended("builds and installs the package twice")

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {
    library.path.relative_to(ROOT / "src").as_posix()
    for library in find_libraries(ROOT / "src" / "stepscope")
}
ON_THIS_MACHINE = sysconfig.get_platform().replace("-", "_").replace(".", "_")


def build_wheel(directory: Path, compiler: str | None) -> Path:
    """Build a wheel of a copy of the source as it is distributed: with nothing built, but for the
    front end. Files that git ignores are only in the wheel if `pyproject.toml` says so.

    Args:
        directory: receives the copy and the wheel.
        compiler: value of the variable CC; None leaves it unset.
    """
    source = directory / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in (".gitignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    if compiler is not None:
        environment["CC"] = compiler
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", str(directory), str(source)],
        env=environment, check=True,
    )  # fmt: skip
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> Path:
    """Install a wheel in a new environment that has the dependencies of this one.

    Returns:
        The command `stepscope`.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)],
        check=True,
    )
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return directory / "bin" / "stepscope"


def run(command: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(command), *arguments],
        cwd=command.parent, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in codes, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("compiler", "libraries", "tag", "decoder"),
    [
        ("nope", set(), "any", "by Python, slower: stepscope was installed without a C compiler"),
        pytest.param(
            None, LIBRARIES, ON_THIS_MACHINE, "by the compiled scanner",
            marks=pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler"),
        ),
    ],
    ids=["without a compiler", "with a compiler"],
)  # fmt: skip
def test_an_installed_package_imports_traces(
    tmp_path: Path, compiler: str | None, libraries: set[str], tag: str, decoder: str
) -> None:
    wheel = build_wheel(tmp_path, compiler)
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.endswith(".so")} == libraries
    assert {name for name in names if name.endswith("_scan/scan.c")}, "the digest needs the source"
    command = install(wheel, tmp_path / "environment")
    checks = json.loads(run(command, "doctor", "--json", codes=(0, 1)))["checks"]
    (detail,) = [check["detail"] for check in checks if check["name"] == "fast import of traces"]
    assert decoder in detail
    recording = [check["available"] for check in checks if check["name"] == "fast recording"]
    assert recording == [bool(libraries)]
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    run(command, "import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run"))
    traces = json.loads(run(command, "show", str(tmp_path / "run"), "recordings", "--json"))
    assert len(traces["recordings"]) == 1
