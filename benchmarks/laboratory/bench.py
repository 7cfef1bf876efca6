"""Inputs of the rows: builds, peers, traces and runs, made on first use and kept in a directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.import_trace import RECIPES, SHARED, write_trace
from benchmarks.laboratory.rounds import Subject
from benchmarks.many_ranks import write_traces
from benchmarks.measuring import OURS, Build, measure

STEPSCOPE = "stepscope"
EARLIER = "earlier build"
RECORDED = "import stepscope, time\nfor _ in stepscope.steps(range(300)): time.sleep(0.001)\n"
"""A job of 300 steps."""
DRAW = """
import sys
from pathlib import Path
from benchmarks.many_ranks import draw_run
draw_run(Path(sys.argv[1]), ranks=1, steps=int(sys.argv[2]))
"""


class NotMeasuredError(Exception):
    """Something that a measurement needs is not here."""


@dataclass(frozen=True)
class Bench:
    """Inputs of the rows."""

    directory: Path
    earlier: Build | None = None
    peers: tuple[str, ...] = ()
    """Interpreters with peers, beside this one."""

    def builds(self, make: Callable[[Build], Subject]) -> dict[str, Subject]:
        """Make a subject for this build and for the earlier one."""
        if self.earlier is None:
            return {STEPSCOPE: make(OURS), EARLIER: not_measured("no earlier build: --today DIR")}
        return {STEPSCOPE: make(OURS), EARLIER: make(self.earlier)}

    def peer(self, module: str) -> str:
        """Return the first interpreter that has a module.

        Raises:
            NotMeasuredError: none has it.
        """
        for python in (sys.executable, *self.peers):
            if has_module(python, module):
                return python
        raise NotMeasuredError(f"no interpreter has {module}: --peers PYTHON")

    def program(self, name: str) -> str:
        """Return a program that is next to one of the interpreters.

        Raises:
            NotMeasuredError: none has it.
        """
        for python in (sys.executable, *self.peers):
            if (path := Path(python).with_name(name)).exists():
                return str(path)
        raise NotMeasuredError(f"no interpreter has {name}: --peers PYTHON")

    def work(self, build: Build) -> Path:
        """Return the directory of the runs of a build."""
        path = self.directory / ("ours" if build is OURS else "earlier")
        path.mkdir(exist_ok=True)
        return path

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make an empty directory for one measurement."""
        with tempfile.TemporaryDirectory(prefix="measured-", dir=self.directory) as path:
            yield Path(path)

    # --- traces ------------------------------------------------------------------------------

    def small_trace(self) -> Path:
        """Return a recording of 2,551 events."""
        return self._shared(SHARED / "traces" / f"{RECIPES['stacks'][0]}.json.gz")

    def trace(self, kind: str, million: int) -> Path:
        """Return a trace of millions of events."""
        self._shared(SHARED / "traces" / f"{RECIPES[kind][0]}.json.gz")
        copies = RECIPES[kind][1] * million
        return self._make(
            f"{kind}-{million}.json", lambda path: write_trace(kind, copies, path), self.directory
        )

    def traces(self, ranks: int) -> Path:
        """Return a directory with a trace of 81,000 events per rank."""
        self._shared(SHARED / "traces")
        return self._make(
            f"ranks-{ranks}", lambda path: write_traces(path, ranks, 2), self.directory
        )

    def _shared(self, path: Path) -> Path:
        if not path.exists():
            raise NotMeasuredError(f"{path.name} is missing: recordings are not part of stepscope")
        return path

    # --- runs of a build -----------------------------------------------------------------------

    def imported(self, build: Build, trace: Path, name: str) -> Path:
        """Return a run that a build has imported from a trace."""
        return self._make_by(build, name, lambda run: build.command("import", trace, "-o", run))

    def recorded(self, build: Build) -> Path:
        """Return a run of 300 steps that a build has recorded."""
        job = (sys.executable, "-c", RECORDED)
        return self._make_by(build, "recorded", lambda run: [*build.record(run), *job])

    def long_run(self, build: Build, steps: int) -> Path:
        """Return a run of many steps that a build has drawn."""
        command = [sys.executable, "-c", DRAW, str(self.work(build)), str(steps)]
        paths = f"{build.root / 'src'}:{build.root}"
        environment = {**build.environment, "PYTHONPATH": paths}
        run = self.work(build) / f"always-on-1x{steps}"
        if not run.exists():
            measure(command, environment=environment)
        return run

    def jobs(self, build: Build, count: int) -> Path:
        """Return a directory with copies of a recorded run."""

        def copy(root: Path) -> None:
            for number in range(count):
                shutil.copytree(self.recorded(build), root / f"run-{number:04}")

        return self._make(f"jobs-{count}", copy, self.work(build))

    def _make_by(self, build: Build, name: str, command: Callable[[Path], list[str]]) -> Path:
        environment = build.environment
        return self._make(
            name, lambda run: measure(command(run), environment=environment), self.work(build)
        )

    def _make(self, name: str, write: Callable[[Path], object], directory: Path) -> Path:
        """Write a file or directory, unless it exists; it has its name only when it is complete."""
        path = directory / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            staged = path.with_name(f"staged-{path.name}")
            shutil.rmtree(staged, ignore_errors=True)
            write(staged)
            staged.rename(path)
        return path


def not_measured(sentence: str) -> Subject:
    """Make a subject that cannot be measured, and says why."""

    def fail() -> float:
        raise NotMeasuredError(sentence)

    return fail


@cache
def has_module(python: str, module: str) -> bool:
    """Return whether an interpreter has a module."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
