"""Runs of one program, and their steps that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stepscope import analysis, intervals, rule_feed
from stepscope.comparison.payload import ComparedRun, Source
from stepscope.comparison.step_changes import StepTimes
from stepscope.comparison.workload_contract import compare_contracts
from stepscope.run import (
    RecordedWork,
    Run,
    calls_of,
    explain_rounding,
    host_categories,
    read_marks,
    recorded_work,
    run_name,
)

DIFFERENT_SOURCES = "one run has steps of a monitored job, the other only profiler traces"
NO_STEPS = "{} has neither steps of a monitored job nor traces with steps"


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a program."""

    run: Run
    works: list[RecordedWork]
    """Work and steps of each trace with steps."""

    @classmethod
    def load(cls, run: Run) -> ProgramRun:
        """Load the traces of a run."""
        works = [work for work in recorded_work(run, "keep") if work.marked and work.steps.names]
        return cls(run=run, works=works)

    @property
    def name(self) -> str:
        """Identifier of the run."""
        return run_name(self.run.reader.location, self.run.reader.info.run_id)

    @property
    def has_measured_steps(self) -> bool:
        """True if a monitored job has measured steps."""
        return any(rank.steps.measured().any() for rank in self.run.ranks)

    def load_step_times(self, source: Source | None) -> StepTimes | None:
        """Load the times of the compared steps; None where the run has none of that source."""
        if source == "watched" and self.has_measured_steps:
            return StepTimes.merge([_select_measured(rank.steps) for rank in self.run.ranks])
        if source == "recorded" and self.works:
            return StepTimes.merge([_break_down(work) for work in self.works])
        return None


def _select_measured(steps: analysis.Steps) -> tuple[intervals.Int, Mapping[str, intervals.Int]]:
    rows = steps.measured()
    return steps.start[rows], {phase: steps.phase_ns[phase][rows] for phase in analysis.PHASES}


def _break_down(work: RecordedWork) -> tuple[intervals.Int, Mapping[str, intervals.Int]]:
    device = {} if work.on_host else analysis.find_device_categories(work.work)
    host = host_categories(work.trace, calls_of(work.trace), read_marks(work.trace))
    parts = analysis.break_down_steps(work.steps.extent, analysis.merge_categories(device, host))
    return work.steps.extent.start, parts


def load_all_step_times(runs: Sequence[ProgramRun], source: Source | None) -> list[StepTimes]:
    """Load the steps of every run; empty where one run has none."""
    loaded = [run.load_step_times(source) for run in runs]
    times = [entry for entry in loaded if entry is not None]
    return times if len(times) == len(runs) else []


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one program, one of which represents it."""

    runs: list[ProgramRun]
    steps: list[StepTimes]
    """Steps by run; empty where the steps of the two programs cannot be compared."""
    representative_index: int

    @property
    def representative(self) -> ProgramRun:
        """The run that represents the program."""
        return self.runs[self.representative_index]

    def describe(self) -> ComparedRun:
        """Describe the program by its representative."""
        run = self.representative.run
        verdict, info = run.derive(rule_feed.make_verdict), run.reader.info
        walls = self.steps[self.representative_index].wall_ns if self.steps else np.empty(0)
        return ComparedRun(
            name=self.representative.name,
            run_id=info.run_id,
            of_runs=len(self.runs),
            command=" ".join(info.command),
            suspect=verdict.suspect,
            cause=verdict.cause,
            share_ratio=verdict.share_ratio,
            share_of=verdict.share_of,
            confidence_ratio=verdict.confidence_ratio,
            headline=verdict.headline,
            step_count=len(walls),
            step_ns=analysis.summarize(walls),
        )

    def list_quality_issues(self) -> list[str]:
        """List reasons why figures may not be those of the program. Damage is complete only after
        all tables were read."""
        issues = []
        for program_run in self.runs:
            name = program_run.name
            damage = program_run.run.reader.damage
            issues += [f"damaged: {name}: {note}" for note in damage]
            different = [
                terms.group
                for terms in compare_contracts(self.representative.run, program_run.run)
                if terms.standing == "different"
            ]
            if different:
                issues.append(
                    f"not runs of one program: {self.representative.name} and {name} differ in "
                    f"{', '.join(different)}"
                )
        return issues

    def list_rounding(self) -> list[str]:
        """List the rounding of the records of each run: no doubt, but no exact times either."""
        explanations = [(run.name, explain_rounding(run.run)) for run in self.runs]
        return [f"{name}: {sentence}" for name, sentence in explanations if sentence is not None]


def find_source(runs: Sequence[ProgramRun]) -> Source | None:
    """Find the source of steps that all runs have; None where there is none."""
    measured = [run.has_measured_steps for run in runs]
    if any(measured):
        return "watched" if all(measured) else None
    return "recorded" if all(run.works for run in runs) else None


def explain_missing_steps(runs: Sequence[ProgramRun]) -> str:
    """Explain in one sentence why steps cannot be compared."""
    for run in runs:
        if not run.has_measured_steps and not run.works:
            return NO_STEPS.format(run.name)
    return DIFFERENT_SOURCES
