"""Installation of the package from its source distribution, with a compiler and without one."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from stepscope.native_library import find_libraries
from tests.support.compiler import needs_compiler
from tests.support.kineto_files import trace, training

pytest.importorskip("hatchling", reason="hatchling, which builds wheels, is not installed")
pytest.importorskip("pip", reason="pip, which installs wheels, is not installed")

pytestmark = pytest.mark.extended("builds and installs the package several times")

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {
    library.path.relative_to(ROOT / "src").as_posix()
    for library in find_libraries(ROOT / "src" / "stepscope")
}
ON_THIS_MACHINE = sysconfig.get_platform().replace("-", "_").replace(".", "_")
MAX_WHEEL_BYTES = 4_500_000
MAX_INSTALLED_BYTES = 12_000_000
MAX_PAGE_GZIP_BYTES = 420_000


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution of a checkout with nothing built, but for the front end.
    Files that git ignores are only in it if `pyproject.toml` says so."""
    directory = tmp_path_factory.mktemp("sdist")
    checkout = directory / "checkout"
    shutil.copytree(
        ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    files = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md")
    for name in (".gitignore", *files):
        shutil.copy(ROOT / name, checkout)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(directory)],
        cwd=checkout, check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = directory.glob("*.tar.gz")
    return archive


def build_wheel(archive: Path, directory: Path, compiler: str | None) -> Path:
    """Build a wheel of a source distribution.

    Args:
        archive: the source distribution.
        directory: receives the wheel.
        compiler: value of the variable CC; None leaves it unset.
    """
    environment = {name: value for name, value in os.environ.items() if name != "CC"}
    if compiler is not None:
        environment["CC"] = compiler
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", str(directory), str(archive)],
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
            marks=needs_compiler,
        ),
    ],
    ids=["without a compiler", "with a compiler"],
)  # fmt: skip
def test_an_installed_package_imports_traces(
    source_distribution: Path,
    tmp_path: Path,
    compiler: str | None,
    libraries: set[str],
    tag: str,
    decoder: str,
) -> None:
    wheel = build_wheel(source_distribution, tmp_path, compiler)
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.endswith(".so")} == libraries
    assert {name for name in names if name.endswith("_scan/scan.c")}, "the digest needs the source"
    command = install(wheel, tmp_path / "environment")
    checks = json.loads(run(command, "doctor", "--json", codes=(0, 1)))["checks"]
    (detail,) = [check["detail"] for check in checks if check["name"] == "fast import of traces"]
    assert decoder in detail
    is_fast = {check["available"] for check in checks if check["name"].startswith("fast ")}
    assert is_fast == {bool(libraries)}
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    run(command, "import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run"))
    traces = json.loads(run(command, "show", str(tmp_path / "run"), "recordings", "--json"))
    assert len(traces["recordings"]) == 1


@needs_compiler
@pytest.mark.timeout(300)
def test_a_wheel_is_small_and_reproducible(source_distribution: Path, tmp_path: Path) -> None:
    first, second = (
        build_wheel(source_distribution, tmp_path / name, compiler=None) for name in ("a", "b")
    )
    digests = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in (first, second)}
    assert len(digests) == 1, "two builds differ"
    assert first.stat().st_size <= MAX_WHEEL_BYTES
    archive = zipfile.ZipFile(first)
    assert sum(entry.file_size for entry in archive.infolist()) <= MAX_INSTALLED_BYTES
    names = archive.namelist()
    information = next(name for name in names if name.endswith("/METADATA")).removesuffix(
        "METADATA"
    )
    web = "stepscope/assets/web/"
    page = [name for name in names if name.startswith(f"{web}app/") and not name.endswith(".gz")]
    sizes = [len(gzip.compress(archive.read(name), mtime=0)) for name in page]
    assert sum(sizes) <= MAX_PAGE_GZIP_BYTES
    for name in ("app/index.html", "app/licenses.md", "report.js", "report.licenses.md"):
        assert f"{web}{name}" in names
    assert {f"{information}licenses/{name}" for name in ("LICENSE", "NOTICE")} <= set(names)
    metadata = message_from_bytes(archive.read(f"{information}METADATA"))
    assert metadata["Requires-Python"] == ">=3.11"


def find_interpreter(minor: int) -> str:
    """Return a Python 3.`minor` that can create environments, or skip the test."""
    versions = Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")
    for python in (shutil.which(f"python3.{minor}"), *map(str, versions)):
        check = [python or "false", "-c", "import ensurepip"]
        if subprocess.run(check, capture_output=True).returncode == 0:
            return check[0]
    pytest.skip(f"there is no Python 3.{minor} with venv")


def install_from_index(python: str, package: Path, directory: Path) -> tuple[int, str]:
    """Install a package and its dependencies in a new environment as a user does; return the exit
    status of pip and what it says."""
    subprocess.run([python, "-m", "venv", str(directory)], check=True)
    done = subprocess.run(
        [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", str(package)],
        capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("minor", [12, 13, 14])
def test_each_interpreter(source_distribution: Path, tmp_path: Path, minor: int) -> None:
    python = find_interpreter(minor)
    environment = tmp_path / "environment"
    code, message = install_from_index(python, source_distribution, environment)
    if code and "Could not find a version" in message:
        pytest.skip("the package index cannot be reached, or lacks a dependency")
    assert code == 0, message
    command = environment / "bin" / "stepscope"
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    run(command, "import", str(tmp_path / "trace.json"), "-o", str(tmp_path / "run"))
    traces = json.loads(run(command, "show", str(tmp_path / "run"), "recordings", "--json"))
    assert len(traces["recordings"]) == 1
    job = [str(environment / "bin" / "python"), "-c", "print(1)"]
    printed = run(command, "run", "--json", "--out", str(tmp_path / "job"), "--", *job)
    assert json.loads(printed.removeprefix("1\n"))["suspect"]


@pytest.mark.timeout(300)
def test_an_interpreter_that_is_too_old(source_distribution: Path, tmp_path: Path) -> None:
    python = find_interpreter(10)
    code, message = install_from_index(python, source_distribution, tmp_path / "environment")
    assert code == 1
    assert "Package 'stepscope' requires a different Python: 3.10" in message
    assert "not in '>=3.11'" in message
