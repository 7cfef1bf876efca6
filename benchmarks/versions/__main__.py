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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stepscope
from benchmarks.versions import changes
from stepscope.errors import StepscopeError

RELEASES = (
    "1.13.1", "2.0.1", "2.1.2", "2.2.2", "2.4.1", "2.5.1", "2.6.0", "2.8.0", "2.10.0", "2.12.1",
    "2.13.0", "2.14.1", "newest",
)  # fmt: skip
PYTHONS = {"1.13.1": "3.10"}
"""Versions of Python of releases whose torchrun does not start on that of the others."""
JOBS = Path(__file__).with_name("jobs.py")
RESULTS = Path(__file__).parents[1] / "results" / "versions.json"
STEPS, RANKS = 40, 2
LIMIT_S = 300
WINDOW_STEPS = 5


@dataclass(frozen=True)
class Cell:
    """One job.

    Args:
        way: argument of `jobs.py`.
        counts: records of each kind per rank.
        options: options of `stepscope run`.
        tables: tables that must have rows.
        ranks: processes, started by torchrun if there are several.
    """

    way: str = "plain"
    counts: dict[str, int] = field(
        default_factory=lambda: {
            "forward": STEPS, "backward": STEPS, "optimizer": STEPS, "data_wait": STEPS + 1
        }
    )  # fmt: skip
    options: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    ranks: int = 1


SCHEDULED = ("--start-step", "10", "--num-steps", str(WINDOW_STEPS))
CELLS = {
    "loop with a DataLoader": Cell(),
    "workers of the DataLoader": Cell("workers"),
    "no modules, no optimizer": Cell("by hand", {"backward": STEPS}),
    "gradient accumulation": Cell(
        "accumulation", {"forward": STEPS, "backward": STEPS, "optimizer": STEPS // 2}
    ),
    "AMP": Cell("amp"),
    "torch.compile": Cell("compile"),
    "DDP": Cell("ddp", ranks=RANKS),
    "FSDP": Cell("fsdp", ranks=RANKS),
    "window with stacks": Cell(
        options=(*SCHEDULED, "--stacks"), tables=("traces", "operators", "python_functions")
    ),
    # After some seconds, in which the profiler's own threads get ready for it.
    "window later": Cell(
        "slow", options=("--start-step", "30", "--stacks"), tables=("traces", "python_functions")
    ),
    "statistics of tensors": Cell(
        options=("--tensors", "weights,gradients,losses", "--tensors-every", "10"),
        tables=("tensor_statistics",),
    ),
    "own profiler": Cell("own profiler"),
    "kill": Cell("kill", {"forward": STEPS // 2, "backward": STEPS // 2, "optimizer": STEPS // 2}),
}
SMALL_PART = (
    "loop with a DataLoader", "torch.compile", "window with stacks", "window later",
    "statistics of tensors",
)  # fmt: skip


def check(cell: Cell, python: Path, directory: Path) -> str:
    """Run a job alone and under stepscope; return `right`, or what is missing or wrong."""
    job = [str(python), *_launcher(cell), str(JOBS), cell.way]
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
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    return done.returncode, losses, [*lines[-1:], *errors][-1]


def _examine(cell: Cell, run: Path) -> str:
    try:
        opened = stepscope.open(run)
        kinds = opened.sql("SELECT kind, count(*) AS n FROM spans GROUP BY kind")
        counts = {row["kind"]: row["n"] for row in kinds.rows()}
        rows = {
            table: int(opened.sql(f"SELECT count(*) AS n FROM {table}").columns["n"][0])  # noqa: S608
            for table in cell.tables
        }
    except StepscopeError as error:
        return f"wrong: {error}"
    wrong = [
        f"{counts.get(kind, 0)} of {cell.ranks * count} {kind}"
        for kind, count in cell.counts.items()
        if counts.get(kind, 0) != cell.ranks * count
    ]
    wrong += [f"no {table}" for table, count in rows.items() if not count]
    notes = sorted(_read_notes(run))
    if wrong:
        return f"wrong: {', '.join([*wrong, *notes])}"
    return f"right; {' '.join(notes)}" if notes else "right"


def _read_notes(run: Path) -> set[str]:
    """Read what processes say that is missing."""
    return {
        note
        for path in (run / "processes").glob("*.json")
        for note in json.loads(path.read_text()).get("notes", [])
    }


def make_environment(release: str, python: str, directory: Path) -> Path:
    """Install a release of PyTorch; returns the interpreter.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", python, directory], check=True)
    interpreter = directory / "bin" / "python"
    torch = "torch" if release == "newest" else f"torch=={release}"
    old = release != "newest" and changes.order_of(release) < changes.order_of("2.3")
    packages = [torch, "numpy<2" if old else "numpy", "setuptools<81"]
    install = [*uv, "pip", "install", "--quiet", "--no-cache", "--python", interpreter]
    subprocess.run([*install, *packages], check=True)
    return interpreter


def check_release(python: Path, only: list[str]) -> dict[str, str]:
    """Check each job with an interpreter; what stepscope itself raises ends the command."""
    answers = {}
    for name in only or CELLS:
        with tempfile.TemporaryDirectory() as directory:
            try:
                answers[name] = check(CELLS[name], python, Path(directory))
            except subprocess.TimeoutExpired:
                answers[name] = f"wrong: did not end within {LIMIT_S} s"
        print(f"  {name}: {answers[name]}", flush=True)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions")
    parser.add_argument("releases", nargs="*", help="releases of PyTorch; by default those left")
    parser.add_argument("--only", action="append", choices=list(CELLS), default=[])
    parser.add_argument(
        "--small", dest="only", action="store_const", const=list(SMALL_PART),
        help="only the jobs that use most of a framework",
    )  # fmt: skip
    parser.add_argument("--python", help="version of Python of the jobs, by default 3.11")
    parser.add_argument("--interpreter", type=Path, help="use it, which has PyTorch, and no other")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.interpreter is not None:
        _check_and_store(results, options.interpreter, options.only)
        return
    for release in options.releases or [r for r in RELEASES if r not in results]:
        print(release, flush=True)
        directory = Path(tempfile.mkdtemp(prefix="stepscope-versions-"))
        try:
            version = options.python or PYTHONS.get(release, "3.11")
            python = make_environment(release, version, directory / "environment")
            _check_and_store(results, python, options.only)
        finally:
            shutil.rmtree(directory)


def _check_and_store(results: dict[str, Any], python: Path, only: list[str]) -> None:
    code = "import platform, torch; print(torch.__version__, platform.python_version())"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    torch, version = shown.stdout.split()
    answers = check_release(python, only)
    entry = results.setdefault(torch.partition("+")[0], {"cells": {}})
    entry |= {"python": version, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
    entry["cells"] |= answers
    ordered = {release: results[release] for release in sorted(results, key=changes.order_of)}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    print(changes.compare_and_store("PyTorch", changes.take_snapshot("PyTorch", python)))


main()
