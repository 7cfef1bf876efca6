"""Outcomes of runs: plain data, appended to a log as the runs finish.

An interrupted benchmark continues from the log. An outcome is reused only if its inputs are
unchanged: the script, its shared modules and the tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Tool = Literal["stepscope", "traces", "TraceML"]
"""Tool that answers; `traces` is stepscope on traces that torch.profiler recorded."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Run to execute."""

    tool: Tool
    scenario: str
    severity: float
    seed: int
    fixed: bool = False

    @property
    def directory(self) -> str:
        """Name of its run directory."""
        suffix = ("-fixed" if self.fixed else "") + ("-traces" if self.tool == "traces" else "")
        return f"{self.scenario}-{self.severity:g}-{self.seed}{suffix}"


class SuggestedFix(msgspec.Struct, frozen=True, kw_only=True):
    """Fix that a tool suggests."""

    title: str
    description: str
    step_ms: float | None = None
    """Predicted step time."""


class NamedStage(msgspec.Struct, frozen=True, kw_only=True):
    """Stage of the suspect's time."""

    name: str
    share_ratio: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a tool, in the terms of a verdict."""

    suspect: str | None
    """None if the tool abstains."""
    cause: str | None = None
    """None if the tool names no causes."""
    remark: bool = False
    """True for a description without a warning: correct where it applies, never a false alarm."""
    confidence_ratio: float | None = None
    stages: list[NamedStage] = []
    fixes: list[SuggestedFix] = []
    step_ms: float | None = None
    words: str = ""
    """Text of the tool."""


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of the script itself, after its warm-up."""

    step_ms: float
    samples_per_step: float

    @property
    def sample_ms(self) -> float:
        """Time per sample."""
        return self.step_ms / self.samples_per_step


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one run."""

    job: Job
    depends_on: str
    """Digest of the script and of the tool."""
    status: Literal["done", "failed", "not run"]
    reason: str = ""
    """Reason for a failure, or for not running it."""
    answer: Answer | None = None
    metered: Metered | None = None
    wall_s: float = 0.0
    outside_cores: float = 0.0
    """Mean number of cores used by processes outside the run."""


class OutcomeLog:
    """Log of outcomes: a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._outcomes: dict[tuple[Job, str], Outcome] = {}
        self._latest: dict[Job, Outcome] = {}
        if path.exists():
            for line in path.read_bytes().splitlines():
                outcome = _read(line)
                if outcome is not None:
                    self._outcomes[outcome.job, outcome.depends_on] = outcome
                    self._latest[outcome.job] = outcome

    def latest(self, job: Job) -> Outcome | None:
        """Return the last outcome of a run, even if its inputs changed; None if it never ran."""
        return self._latest.get(job)

    def get(self, job: Job, depends_on: str) -> Outcome | None:
        """Return the outcome of a run; None if it has to run, or failed before."""
        outcome = self._outcomes.get((job, depends_on))
        return outcome if outcome is not None and outcome.status == "done" else None

    def add(self, outcome: Outcome) -> None:
        """Append an outcome; it is on disk when this returns."""
        self._outcomes[outcome.job, outcome.depends_on] = outcome
        self._latest[outcome.job] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(outcome) + b"\n")


def select_tool(outcomes: Iterable[Outcome], tool: Tool) -> list[Outcome]:
    """Select the outcomes of one tool."""
    return [outcome for outcome in outcomes if outcome.job.tool == tool]


def _read(line: bytes) -> Outcome | None:
    try:
        return msgspec.json.decode(line, type=Outcome)
    except msgspec.DecodeError:  # the incomplete last line of a killed benchmark
        return None
