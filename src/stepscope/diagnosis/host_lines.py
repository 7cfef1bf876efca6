"""Lines of the script with their share of the step, from stack samples of the training thread, and
callbacks of a trainer, which are timed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stepscope.analysis import HostCause, HostLine
from stepscope.diagnosis.cause import CauseInputs
from stepscope.diagnosis.verdict import Evidence
from stepscope.quantities import percent
from stepscope.run import Run, measure_callbacks

MIN_LINE_RATIO = 0.01
"""Lines with a smaller share of the step are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A line and its share of the step."""

    line: HostLine
    share: float

    @property
    def location(self) -> str:
        """File and line, or library and function."""
        file = self.line.file.rpartition("/")[2]
        return f"{file}:{self.line.line}" if self.line.line else file

    def describe(self) -> Evidence:
        """Describe the line by its share of the step."""
        source = f" ({self.line.source})" if self.line.source else ""
        text = f": {self.line.text}" if self.line.text else "."
        return Evidence(
            text=f"{self.location} takes {percent(self.share)} of step time{source}{text}",
            value=self.share,
            unit="ratio",
            source="steps",
        )


def describe_callbacks(run: Run) -> list[Evidence]:
    """Describe the callback or logger of the trainer that takes the most step time, if it is
    sizeable."""
    totals = Counter[str]()
    wall_ns = 0
    for rank in run.ranks:
        totals.update(measure_callbacks(rank))
        wall_ns += int(rank.steps.wall_ns[rank.steps.measured()].sum())
    for name, total_ns in totals.most_common(1):
        share = total_ns / max(1, wall_ns)
        if share >= MIN_LINE_RATIO:
            text = f"The callback {name} takes {percent(share)} of step time."
            return [Evidence(text=text, value=share, unit="ratio", source="steps")]
    return []


def list_lines(
    inputs: CauseInputs, *causes: HostCause, phases: tuple[str, ...] = ()
) -> list[StepLine]:
    """List the lines with one of some causes, in some phases or in any, largest first, of the rank
    with the most samples."""
    works = [work for rank in inputs.run.ranks if (work := rank.host_work) is not None]
    if not works:
        return []
    work = max(works, key=lambda work: sum(work.phase_samples.values()))
    lines = [
        StepLine(line=line, share=line.ratio * inputs.shares.phases[line.phase])
        for line in work.lines
        if (not causes or line.cause in causes) and (not phases or line.phase in phases)
    ]
    sizeable = [line for line in lines if line.share >= MIN_LINE_RATIO]
    return sorted(sizeable, key=lambda line: -line.share)


def list_framework_lines(inputs: CauseInputs) -> list[StepLine]:
    """List the lines that call torch between the phases, largest first."""
    return list_lines(inputs, "framework", phases=("other",))


def name_first(lines: list[StepLine]) -> str:
    """Name the location of the largest line; '' without any."""
    return lines[0].location if lines else ""
