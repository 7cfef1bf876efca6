"""Command of the package; see its docstring."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import stepscope
from benchmarks.versions import changes
from benchmarks.versions.cells import Cell
from benchmarks.versions.frameworks import FRAMEWORKS, NEWEST, Framework, Release
from stepscope.errors import StepscopeError

RESULTS = Path(__file__).parents[1] / "results" / "versions.json"
LIMIT_S = 1200
_ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]*(?<!ChildFailed)(Error|Exception): ")
"""An error of a job; not that of torchrun, which says that a rank failed."""


def check(script: Path, cell: Cell, python: Path, directory: Path) -> str:
    """Run a job alone and under stepscope; return `right`, or what is missing or wrong."""
    job = [str(python), *_launcher(cell), str(script), *cell.way.split(" ")]
    code, printed, problem = _run(job, directory)
    if code not in {0, -9}:
        return f"not possible: {problem}"
    run = directory / "run"
    recorded = [sys.executable, "-m", "stepscope", "run", "--quiet", "--out", str(run)]
    status, output, problem = _run([*recorded, *cell.options, "--", *job], directory)
    if status not in {code, 128 - code}:
        return f"wrong: exit status {status} instead of {code}: {problem}"
    if output != printed:
        return "wrong: the output differs"
    return _examine(cell, run)


def _launcher(cell: Cell) -> list[str]:
    if cell.ranks == 1:
        return []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = [f"--nproc_per_node={cell.ranks}", f"--master_port={port}"]
    return ["-m", "torch.distributed.run", *options]


def _run(command: list[str], directory: Path) -> tuple[int, list[str], str]:
    """Return exit status, what the job printed (ranks print in any order), and the last error."""
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    losses = sorted(line for line in done.stdout.splitlines() if "0x" in line)
    lines = done.stderr.strip().splitlines() or [""]
    errors = [line for line in lines if _ERROR.match(line)]
    return done.returncode, losses, [*lines[-1:], *errors][-1]


def _examine(cell: Cell, run: Path) -> str:
    try:
        opened = stepscope.open(run)
        query = "SELECT kind, name, count(*) AS n FROM spans GROUP BY kind, name"
        spans = list(opened.sql(query).rows())
        rows = {
            table: int(opened.sql(f"SELECT count(*) AS n FROM {table}").columns["n"][0])  # noqa: S608
            for table in cell.tables
        }
    except StepscopeError as error:
        return f"wrong: {error}"
    wrong = []
    for record, count in cell.counts.items():
        kind, _, name = record.partition(" ")
        rows_of = (row for row in spans if row["kind"] == kind and name in {"", row["name"]})
        recorded = sum(row["n"] for row in rows_of)
        if recorded != cell.ranks * count:
            wrong.append(f"{recorded} of {cell.ranks * count} {record}")
    wrong += [f"{count} steps" for count in _count_steps(run) if count != cell.steps]
    notes = sorted(_read_notes(run))
    explained = " ".join(notes).lower()
    absent = [table for table, count in rows.items() if not count]
    wrong += [f"no {table}" for table in absent if table.replace("_", " ") not in explained]
    if wrong:
        return f"wrong: {', '.join([*wrong, *notes])}"
    return f"right; {' '.join(notes)}" if notes else "right"


def _count_steps(run: Path) -> list[int]:
    """Return the number of steps of each rank."""
    command = [sys.executable, "-m", "stepscope", "show", str(run), "steps", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [rank["step_count"] for rank in json.loads(done.stdout)["ranks"]] or [0]


def _read_notes(run: Path) -> set[str]:
    """Read what processes say that is missing."""
    return {
        note
        for path in (run / "processes").glob("*.json")
        for note in json.loads(path.read_text()).get("notes", [])
    }


def make_environment(framework: Framework, release: Release, directory: Path) -> Path:
    """Install a release; returns the interpreter.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", release.python, directory], check=True)
    interpreter = directory / "bin" / "python"
    package = release.package or framework.packages[0]
    pinned = package if release.version == NEWEST else f"{package}=={release.version}"
    install = [*uv, "pip", "install", "--quiet", "--no-cache", "--python", interpreter]
    subprocess.run([*install, pinned, *release.companions], check=True)
    return interpreter


def check_release(framework: Framework, python: Path, only: list[str]) -> Iterator[tuple[str, str]]:
    """Check each job with an interpreter; what stepscope itself raises ends the command."""
    for name, cell in framework.cells.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                answer = check(framework.script, cell, python, Path(directory))
            except subprocess.TimeoutExpired:
                answer = f"wrong: did not end within {LIMIT_S} s"
        print(f"  {name}: {answer}", flush=True)
        yield name, answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions")
    parser.add_argument("releases", nargs="*", help="releases; by default those without results")
    parser.add_argument(
        "--framework", choices=list(FRAMEWORKS), help="by default all; PyTorch for named releases"
    )
    parser.add_argument("--only", action="append", metavar="JOB", default=[])
    parser.add_argument("--small", action="store_true", help="only jobs that use most of it")
    parser.add_argument("--python", help="version of Python of the jobs")
    parser.add_argument("--interpreter", type=Path, help="use it, which has the framework")
    options = parser.parse_args()
    if options.small:
        options.only = [name for f in FRAMEWORKS.values() for name in f.small_part]
    is_one = options.releases or options.interpreter
    frameworks = [options.framework or "PyTorch"] if is_one or options.framework else FRAMEWORKS
    for name in frameworks:
        framework = FRAMEWORKS[name]
        results = _read_results().get(name, {})
        if options.interpreter is not None:
            _check_and_store(name, options.interpreter.absolute(), options.only)
            continue
        releases = {release.version: release for release in framework.releases}
        for version in options.releases or [v for v in releases if v not in results]:
            print(name, version, flush=True)
            release = releases.get(version, Release(version))
            if options.python:
                release = replace(release, python=options.python)
            directory = Path(tempfile.mkdtemp(prefix="stepscope-versions-"))
            try:
                python = make_environment(framework, release, directory / "environment")
                _check_and_store(name, python, options.only)
            finally:
                shutil.rmtree(directory)


def _read_results() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _check_and_store(name: str, python: Path, only: list[str]) -> None:
    framework = FRAMEWORKS[name]
    python_version, versions = _read_versions(framework, python)
    version = next(versions[name] for name in framework.packages if name in versions)
    companions = {name: versions[name] for name in framework.companions if name in versions}
    for job, answer in check_release(framework, python, only):
        results = _read_results()
        entry = results.setdefault(name, {}).setdefault(version, {"cells": {}})
        entry["cells"][job] = answer
        entry |= {
            "python": python_version, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
        }  # fmt: skip
        if companions:
            entry["with"] = companions
        ordered = {
            name: dict(sorted(results[name].items(), key=lambda item: changes.order_of(item[0])))
            for name in FRAMEWORKS
            if name in results
        }
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    if name in changes.FRAMEWORKS:
        print(changes.compare_and_store(name, changes.take_snapshot(name, python)))


_READ_VERSIONS = """
import json, platform, sys
from importlib import metadata

versions = {}
for name in sys.argv[1:]:
    try:
        versions[name] = metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        pass
print(json.dumps([platform.python_version(), versions]))
"""


def _read_versions(framework: Framework, python: Path) -> tuple[str, dict[str, str]]:
    """Read the versions of Python and of the framework's distributions and companions."""
    command = [python, "-c", _READ_VERSIONS, *framework.packages, *framework.companions]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    version, versions = json.loads(shown.stdout)
    return version, versions


main()
