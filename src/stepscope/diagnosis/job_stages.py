"""Verdicts on the stages of a job that trains several times in one process.

The mean step of several trainings is that of none. So each stage is diagnosed by itself, and the
verdict of the job is that of the stage with the largest share of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import count_of, duration, percent
from stepscope.run import Run, job_borders, list_stages, select_stage

if TYPE_CHECKING:
    from stepscope.diagnosis.verdict import Verdict

MIN_STAGE_RATIO = 0.05
"""Stages with a smaller share of the time of all stages are not judged apart."""
MAX_JUDGED_STAGES = 8
"""Number of stages that are diagnosed, those with the largest share of time."""
ABSTENTION = "insufficient_evidence"


class JobStage(msgspec.Struct, frozen=True, kw_only=True):
    """One of several trainings of a job, with its verdict."""

    number: Annotated[int, schema.field_label("stage", display="identifier")]
    """Number in the order of time, counted from 1."""
    title: str
    """Classes of its model, optimizer and data set."""
    model: str
    optimizer: str
    dataset: str
    start_ns: Annotated[int, schema.field_label("start", unit="epoch_ns")]
    end_ns: Annotated[int, schema.field_label("end", unit="epoch_ns")]
    duration_ns: int
    share_ratio: Annotated[float | None, schema.field_label("share of the job")]
    """Share of the time from the start of the job to its end."""
    first_step: Annotated[int, schema.field_label(display="identifier")]
    """Number of its first step, counted from 0."""
    step_count: int
    """Its steps on the first rank."""
    measured_count: int | None
    """Its measured steps of all ranks; null where it was not diagnosed, as all that follow."""
    mean_step_ns: float | None
    suspect: str | None
    cause: str | None
    suspect_share_ratio: float | None
    headline: str | None


def diagnose_stages_of_job(run: Run, judge: Callable[[Run], Verdict]) -> Verdict | None:
    """Diagnose the stages of a run; None for a range, and where one of them has most of the time.

    Args:
        run: the run.
        judge: returns the verdict on a stage, or on the whole run as if it had none.
    """
    stages = list_stages(run) if run.is_whole else []
    total_ns = sum(_measure(stage) for stage in stages)
    if sum(_measure(stage) >= MIN_STAGE_RATIO * total_ns for stage in stages) < 2:
        return None
    numbers = sorted(range(len(stages)), key=lambda number: -_measure(stages[number]))
    judged = {n: judge(select_stage(run, stages[n])) for n in numbers[:MAX_JUDGED_STAGES]}
    start_ns, end_ns = job_borders(run)
    job_stages = [
        _show(number, stages[number], judged.get(number), end_ns - start_ns) for number in numbers
    ]
    main = next((n for n in numbers if n in judged and judged[n].suspect != ABSTENTION), None)
    if main is None:
        verdict = judge(run)
        headline = f"{count_of(len(stages), 'stage')} of training. {verdict.headline}"
    else:
        verdict = judged[main]
        share = percent(_measure(stages[main]) / total_ns)
        headline = (
            f"{count_of(len(stages), 'stage')} of training. Stage {main + 1}, "
            f"{stages[main].title}, has {share} of their time: {verdict.headline}"
        )
    notes = [*verdict.notes, _explain(main)]
    return msgspec.structs.replace(verdict, headline=headline, notes=notes, job_stages=job_stages)


def explain_mixed_stages(run: Run) -> str | None:
    """Say that the steps of a run, or of a range of it, are of several stages; None if not."""
    stages = list_stages(run)
    if len(stages) < 2:
        return None
    titles = list(dict.fromkeys(stage.title for stage in stages))
    listed = ", ".join(titles[:MAX_JUDGED_STAGES])
    return (
        f"The steps are of {len(stages)} stages of training ({listed}), and the statistics mix "
        "them; `stepscope diagnose RUN` judges each by itself."
    )


def write_stages(stages: Sequence[JobStage]) -> list[str]:
    """Write a line for each stage that was diagnosed, and one for the others."""
    lines = [_write(stage) for stage in stages if stage.headline is not None]
    others = len(stages) - len(lines)
    return [*lines, f"{count_of(others, 'shorter stage')}."] if others else lines


def _write(stage: JobStage) -> str:
    share = "" if stage.share_ratio is None else f"{percent(stage.share_ratio)} of the job, "
    step = "" if stage.mean_step_ns is None else f", mean {duration(stage.mean_step_ns)}"
    return (
        f"Stage {stage.number}, {stage.title}: {share}{count_of(stage.step_count, 'step')}{step}. "
        f"{stage.headline}"
    )


def _explain(main: int | None) -> str:
    if main is None:
        return "No stage has enough steps for a verdict; the shares are of the steps of all of them."
    return f"The shares, the mean step and the fixes are those of stage {main + 1}."


def _measure(stage: analysis.Stage) -> int:
    return stage.end_ns - stage.start_ns


def _show(number: int, stage: analysis.Stage, verdict: Verdict | None, job_ns: int) -> JobStage:
    is_judged = verdict is not None and verdict.suspect != ABSTENTION
    return JobStage(
        number=number + 1,
        title=stage.title,
        model=stage.model,
        optimizer=stage.optimizer,
        dataset=stage.dataset,
        start_ns=stage.start_ns,
        end_ns=stage.end_ns,
        duration_ns=_measure(stage),
        share_ratio=min(1.0, _measure(stage) / job_ns) if job_ns > 0 else None,
        first_step=stage.first,
        step_count=stage.step_count,
        measured_count=None if verdict is None else verdict.step_count,
        mean_step_ns=None if verdict is None else verdict.mean_step_ns,
        suspect=None if verdict is None else verdict.suspect,
        cause=None if verdict is None else verdict.cause,
        suspect_share_ratio=verdict.share_ratio if verdict is not None and is_judged else None,
        headline=None if verdict is None else verdict.headline,
    )
