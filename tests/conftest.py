"""A spool of a test's own: run Python in it, and read what was recorded as the monitor does."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from stepscope.capture.bootstrap import environment
from stepscope.monitor.drain import SpoolDrain
from stepscope.monitor.process_logs import ProcessLogs
from stepscope.spool import PROGRAM, START, SpoolTree
from stepscope.store import DictColumn
from tests.support.azure_storage import azure, container, storage  # noqa: F401 - fixtures
from tests.support.buckets import bucket, s3  # noqa: F401 - fixtures
from tests.support.cpu_budget import CpuBudget, read_budgets
from tests.support.forked_jobs import FORKS, JOB_TIMEOUT_S
from tests.support.job_control import JOB_PYTHON
from tests.support.parts import CostRecorder, Part
from tests.support.recorded_facts import check_facts

# A busy machine takes longer than the usual 200 ms for an example.
hypothesis.settings.register_profile("test", deadline=None, max_examples=30)
hypothesis.settings.register_profile("test-all", deadline=None)
LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it would reach the run. Times are monotonic; `end` is None while open."""

    table: str
    process: str
    log: str
    seq: int
    kind: str
    name: str
    labels: str | None
    start: int
    end: int | None
    depth: int
    flags: int
    value: float

    @property
    def duration(self) -> int:
        assert self.end is not None, f"{self.kind} {self.name} is open"
        return self.end - self.start

    def inside(self, record: Record) -> bool:
        """True when this one lies within another of the same log's thread."""
        assert self.end is not None
        assert record.end is not None
        return record.start <= self.start and self.end <= record.end and self is not record


@dataclass(frozen=True)
class Recorded:
    """Content of a spool."""

    records: list[Record]
    """All but the stack samples of the start."""
    processes: dict[str, ProcessLogs]
    """Those that recorded more than stacks."""
    programs: dict[str, ProcessLogs]
    start_samples: list[Record]

    def of(self, kind: str, *, name: str | None = None) -> list[Record]:
        """Return records of one kind, by start."""
        spans = [r for r in self.records if r.kind == kind and name in {None, r.name}]
        return sorted(spans, key=lambda r: r.start)

    def count(self, kind: str) -> Counter[str]:
        """Count the spans by name."""
        return Counter(r.name for r in self.of(kind))

    @property
    def notes(self) -> list[str]:
        return [note for process in self.processes.values() for note in process.notes]

    @property
    def dropped(self) -> int:
        return sum(sum(p.dropped.values()) for p in self.processes.values())

    def facts(self, fact: str) -> list[dict[str, Any]]:
        processes = {**self.processes, **self.programs}
        recorded = [fact for process in processes.values() for fact in process.facts]
        return [entry for entry in recorded if entry["fact"] == fact]


class Spool:
    """A spool directory."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self.tree = SpoolTree(str(path), limit_bytes)

    def run(
        self, code: str, *arguments: str, python: str = JOB_PYTHON, check: bool = True,
        flags: tuple[str, ...] = (), cwd: Path | None = None, **variables: str,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run code as `stepscope run` would have it run, in strict mode."""
        done = subprocess.run(
            [python, *flags, str(self._write_script(code)), *arguments],
            env={**self.environment(), **variables},
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            cwd=cwd,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def run_torch(
        self, code: str | Path, *arguments: str, ranks: int = 1, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run code, or a script, that uses PyTorch, in a fork of a process that has imported it.

        Args:
            ranks: processes of the job, each with the variables that torchrun sets.
        """
        if importlib.util.find_spec("torch") is None:
            pytest.skip("needs PyTorch")
        script = code if isinstance(code, Path) else self._write_script(code)
        done = FORKS.run(script, arguments, {**self.environment(), **variables}, ranks)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def _write_script(self, code: str) -> Path:
        script = self.path.with_name(f"{self.path.name}-script.py")
        script.write_text(textwrap.dedent(code))
        return script

    def environment(self) -> dict[str, str]:
        """Return variables of a job that records into this spool."""
        return {
            **os.environ,
            **environment(str(self.path), self.limit_bytes),
            "STEPSCOPE_STRICT": "1",
            "STEPSCOPE_WINDOW": "off",
        }

    def drain(self, *, final: bool = True) -> Recorded:
        """Everything in it; with `final`, of processes that still run as well."""
        drain = SpoolDrain(self.tree, node="node", epoch_offset_ns=0, stored=_nothing_stored)
        spans = drain.collect(final=final)
        check_facts(fact for process in drain.processes.values() for fact in process.facts)
        records = []
        for table, rows in spans.items():
            if rows:
                columns = drain.columns(table, rows)
                records += _records(table, columns)
        roles = {name: p.description.get("role") for name, p in drain.processes.items()}
        return Recorded(
            [record for record in records if record.log[-1] != START],
            {name: p for name, p in drain.processes.items() if roles[name] != PROGRAM},
            {name: p for name, p in drain.processes.items() if roles[name] == PROGRAM},
            sorted((r for r in records if r.log[-1] == START), key=lambda r: r.start),
        )


def _nothing_stored(*_: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.empty(0, dtype=np.int64)


def _records(table: str, columns: dict[str, Any]) -> Iterator[Record]:
    plain = {
        name: (column.decode() if isinstance(column, DictColumn) else column).tolist()
        for name, column in columns.items()
    }
    for i in range(len(plain["seq"])):
        row = {name: values[i] for name, values in plain.items()}
        yield Record(
            table=table,
            process=row["process"],
            log=row["log"],
            seq=row["seq"],
            kind=row.get("kind", table),
            name=row.get("name", row.get("stack", row.get("metric"))),
            labels=row.get("labels"),
            start=row.get("start_ns", row.get("t_ns")),
            end=row.get("end_ns"),
            depth=row.get("depth", 0),
            flags=row.get("flags", 0),
            value=row.get("value", 0),
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "tiers of the tests (CONTRIBUTING.md)")
    group.addoption("--tier", choices=["test", "test-all"], help="check tests/budget.toml")
    group.addoption("--part", type=Part.parse, metavar="K/N", help="run one of N parts")
    group.addoption("--record-costs", action="store_true", help="write tests/costs.json")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background: tests send it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    tier, part = config.getoption("--tier"), config.getoption("--part")
    hypothesis.settings.load_profile(tier or "test-all")
    if tier:
        budgets = read_budgets()
        plugin = CpuBudget(budgets.tiers[tier], part, slow_folders=budgets.reasons)
        config.pluginmanager.register(plugin)
    if part:
        config.pluginmanager.register(part)
    if config.getoption("--record-costs") and not hasattr(config, "workerinput"):
        workers = config.getoption("numprocesses") or 1
        config.pluginmanager.register(CostRecorder(workers, config.getoption("markexpr").strip()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one job of each subclass of `FrameworkContract` out of `make test`."""
    for item in items:
        contracts = [base.__name__ for base in getattr(getattr(item, "cls", None), "__mro__", ())]
        starts_another = {"slow_job", "tmp_path"} & set(getattr(item, "fixturenames", ()))
        if "FrameworkContract" in contracts and starts_another:
            item.add_marker(pytest.mark.extended("one job of each adapter is in make test"))


def pytest_sessionfinish() -> None:
    """End the process that jobs are forked from."""
    FORKS.close()


@pytest.fixture
def new_spool(tmp_path: Path) -> Callable[[str], Spool]:
    """Make empty spools by name, on disk."""

    def make(name: str) -> Spool:
        path = tmp_path / name
        path.mkdir()
        return Spool(path)

    return make


@pytest.fixture
def spool(new_spool: Callable[[str], Spool]) -> Spool:
    """Make an empty spool on disk."""
    return new_spool("spool")


@pytest.fixture(scope="module")
def module_spool(tmp_path_factory: pytest.TempPathFactory) -> Spool:
    """Provide a spool that the tests of a module share, for an expensive recording."""
    path = tmp_path_factory.mktemp("module") / "spool"
    path.mkdir()
    return Spool(path)
