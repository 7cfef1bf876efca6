"""The runs of one program, and those of their steps that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import (
    PHASES,
    Steps,
    break_down_steps,
    find_device_categories,
    make_statistics,
    merge_categories,
    summarize,
)
from stepscope.comparison.differences import StepTimes
from stepscope.comparison.payload import ComparedRun, Source
from stepscope.comparison.workload_contract import contract
from stepscope.diagnosis import diagnose
from stepscope.intervals import Int
from stepscope.run import RecordedWork, Run, calls_of, host_categories, recorded_work

NOT_ALIKE = (
    "one run has steps that stepscope watched and the other only recordings of a profiler: their "
    "steps cannot be compared"
)
NO_STEPS = "no steps: {} holds neither steps of a watched job nor recordings with steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    """One run of a program."""

    signals: Run
    recorded: list[RecordedWork]
    """Recordings with steps."""

    @classmethod
    def of(cls, signals: Run) -> ProgramRun:
        """Finds the recordings."""
        every = recorded_work(signals, "keep")
        return cls(signals=signals, recorded=[o for o in every if o.marked and o.steps.names])

    @property
    def watched(self) -> bool:
        """Whether any step was watched, and measured."""
        return any(rank.steps.measured().any() for rank in self.signals.ranks)

    def step_times(self, source: Source | None) -> StepTimes | None:
        """The steps that are compared."""
        if source == "watched" and self.watched:
            return StepTimes.of([_measured(rank.steps) for rank in self.signals.ranks])
        if source == "recorded" and self.recorded:
            return StepTimes.of([_broken_down(one) for one in self.recorded])
        return None


def _measured(steps: Steps) -> tuple[Int, Mapping[str, Int]]:
    rows = steps.measured()
    return steps.start[rows], {phase: steps.phase_ns[phase][rows] for phase in PHASES}


def _broken_down(one: RecordedWork) -> tuple[Int, Mapping[str, Int]]:
    device = {} if one.on_host else find_device_categories(one.work)
    host = host_categories(one.trace, calls_of(one.trace))
    return one.steps.extent.start, break_down_steps(
        one.steps.extent, merge_categories(device, host)
    )


def steps_of_runs(runs: Sequence[ProgramRun], source: Source | None) -> list[StepTimes]:
    """The steps of every run; none where those of one are not known."""
    found = [run.step_times(source) for run in runs]
    known = [each for each in found if each is not None]
    return known if len(known) == len(runs) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The runs of one program, one of which stands for it."""

    runs: list[ProgramRun]
    steps: list[StepTimes]
    """By run; none where the steps of the two programs cannot be compared."""
    place: int
    """Of the run that stands for it."""

    @property
    def stands(self) -> ProgramRun:
        """The run that stands for it."""
        return self.runs[self.place]

    def compared(self) -> ComparedRun:
        """What is said of the program."""
        signals = self.stands.signals
        verdict, info = diagnose(signals), signals.reader.info
        walls = self.steps[self.place].wall_ns if self.steps else np.empty(0)
        return ComparedRun(
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
            step_ns=make_statistics(summarize(walls)),
        )

    def doubts(self) -> list[str]:
        """Why figures may not be those of the program. What is damaged shows when it is read."""
        stands = self.stands.signals
        found = []
        for run in self.runs:
            signals, name = run.signals, run.signals.reader.info.run_id
            found += [f"damaged: {name}: {note}" for note in signals.reader.damage]
            unlike = [
                each.group for each in contract(stands, signals) if each.standing == "different"
            ]
            if unlike:
                found.append(
                    f"not runs of one program: {stands.reader.info.run_id} and {name} differ in "
                    f"{', '.join(unlike)}"
                )
        return found


def source_of(runs: Sequence[ProgramRun]) -> Source | None:
    """Which steps all of them have; None where that is none."""
    watched = [run.watched for run in runs]
    if any(watched):
        return "watched" if all(watched) else None
    return "recorded" if all(run.recorded for run in runs) else None


def why_no_steps(runs: Sequence[ProgramRun]) -> str:
    """One sentence."""
    for run in runs:
        if not run.watched and not run.recorded:
            return NO_STEPS.format(run.signals.reader.info.run_id)
    return NOT_ALIKE
