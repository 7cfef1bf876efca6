"""What came of the runs: plain data, appended to a file as the runs finish.

An interrupted benchmark goes on where it was. A run is taken from the file only if nothing that it
depends on has changed since: the script and what it imports from beside it, and the tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Tool = Literal["stepscope", "TraceML"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is asked for."""

    tool: Tool
    scenario: str
    severity: float
    seed: int
    fixed: bool = False

    @property
    def directory(self) -> str:
        """A name for what it leaves behind."""
        fixed = "-fixed" if self.fixed else ""
        return f"{self.scenario}-{self.severity:g}-{self.seed}{fixed}"


class FixSaid(msgspec.Struct, frozen=True, kw_only=True):
    """A fix that a tool suggests."""

    title: str
    how: str
    step_ms: float | None = None
    """Predicted."""


class StageSaid(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what the suspect owns."""

    name: str
    share_ratio: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool says that a job waits for, in the words of a verdict."""

    suspect: str | None
    """None: it abstains."""
    cause: str | None = None
    """None: it names no causes."""
    remark: bool = False
    """It only describes the job and warns of nothing: right where it is so, elsewhere no alarm."""
    confidence_ratio: float | None = None
    stages: list[StageSaid] = []
    fixes: list[FixSaid] = []
    step_ms: float | None = None
    words: str = ""
    """As the tool puts it."""


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """What the script itself measured, past its warm-up."""

    step_ms: float
    samples_per_step: float

    @property
    def sample_ms(self) -> float:
        """What one sample took, whatever a step was."""
        return self.step_ms / self.samples_per_step


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run."""

    job: Job
    depends_on: str
    """Digest of the script and of the tool."""
    status: Literal["done", "failed", "not run"]
    reason: str = ""
    """Why it failed, or was not run."""
    answer: Answer | None = None
    metered: Metered | None = None
    wall_s: float = 0.0
    outside_cores: float = 0.0
    """Cores that processes which do not belong to the run kept busy meanwhile."""


class Kept:
    """Outcomes in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[tuple[Job, str], Outcome] = {}
        self._latest: dict[Job, Outcome] = {}
        if path.exists():
            for line in path.read_bytes().splitlines():
                outcome = _read(line)
                if outcome is not None:
                    self._known[outcome.job, outcome.depends_on] = outcome
                    self._latest[outcome.job] = outcome

    def latest(self, job: Job) -> Outcome | None:
        """The last outcome of a run, whatever has changed since; None where it never ran."""
        return self._latest.get(job)

    def get(self, job: Job, depends_on: str) -> Outcome | None:
        """The outcome of a run, None where it has to be run; runs that failed are tried again."""
        outcome = self._known.get((job, depends_on))
        return outcome if outcome is not None and outcome.status == "done" else None

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome, on disk before this returns."""
        self._known[outcome.job, outcome.depends_on] = outcome
        self._latest[outcome.job] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(outcome) + b"\n")


def of_tool(outcomes: Iterable[Outcome], tool: Tool) -> list[Outcome]:
    """Those of one tool."""
    return [outcome for outcome in outcomes if outcome.job.tool == tool]


def _read(line: bytes) -> Outcome | None:
    try:
        return msgspec.json.decode(line, type=Outcome)
    except msgspec.DecodeError:  # the last line of a benchmark that was killed
        return None
