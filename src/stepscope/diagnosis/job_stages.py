"""Verdicts on the stages of a job that trains several times in one process.

The mean step of several trainings is that of none. So each stage is diagnosed by itself, and the
verdict of the job is that of the stage with the largest share of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stepscope import analysis
from stepscope.diagnosis.job_stage import MAX_LISTED, JobStage
from stepscope.diagnosis.sentences import hedge
from stepscope.diagnosis.verdict import Verdict
from stepscope.quantities import count_of, duration, percent
from stepscope.run import Run, job_borders, list_stages, select_stage

MIN_STAGE_RATIO = 0.05
"""Stages with a smaller share of the time of all stages are not judged apart."""
ABSTENTION = "insufficient_evidence"


def diagnose_stages_of_job(run: Run, judge: Callable[[Run], Verdict]) -> Verdict | None:
    """Diagnose the stages of a run; None for a range, and where one of them has most of the time.

    Args:
        run: the run.
        judge: returns the verdict on a stage, or on the whole run as if it had none.
    """
    stages = _list_large_stages(run) if run.is_whole else []
    if not stages:
        return None
    total_ns = sum(_measure(stage) for stage in stages)
    numbers = sorted(range(len(stages)), key=lambda number: -_measure(stages[number]))
    judged = {n: judge(select_stage(run, stages[n])) for n in numbers[:MAX_LISTED]}
    start_ns, end_ns = job_borders(run)
    main = next((n for n in judged if judged[n].suspect != ABSTENTION), None)
    job_stages = [
        _show(n, stages[n], judged.get(n), end_ns - start_ns, is_main=n == main) for n in numbers
    ]
    if main is None:
        verdict = judge(run)
        headline = f"{_count(run, stages)}. {verdict.headline}"
    else:
        verdict = judged[main]
        share = percent(_measure(stages[main]) / total_ns)
        headline = (
            f"{_count(run, stages)}. Stage {main + 1}, "
            f"{stages[main].title}, has {share} of their time: {verdict.headline}"
        )
    notes = [*verdict.notes, _explain(main)]
    return msgspec.structs.replace(verdict, headline=headline, notes=notes, job_stages=job_stages)


def _list_large_stages(run: Run) -> list[analysis.Stage]:
    """List the stages of a run; none where only one of them is large."""
    stages = list_stages(run)
    total_ns = sum(_measure(stage) for stage in stages)
    large = [stage for stage in stages if _measure(stage) >= MIN_STAGE_RATIO * total_ns]
    return stages if len(large) > 1 else []


def _count(run: Run, stages: Sequence[analysis.Stage]) -> str:
    work = "prediction" if run.ranks and run.ranks[0].steps.is_inference else "training"
    return f"{count_of(len(stages), 'stage')} of {work}"


def explain_mixed_stages(run: Run) -> str | None:
    """Say that the steps of a run, or of a range of it, are of several stages; None if not."""
    stages = _list_large_stages(run)
    if not stages:
        return None
    titles = list(dict.fromkeys(stage.title for stage in stages))
    listed = ", ".join(titles[:MAX_LISTED])
    listed += ", …" if len(titles) > MAX_LISTED else ""
    return (
        f"The steps are of {_count(run, stages)} ({listed}), and the statistics mix "
        "them; `stepscope diagnose RUN` judges each by itself."
    )


def _explain(main: int | None) -> str:
    if main is None:
        return (
            "No stage has enough steps for a verdict; the shares are of the steps of all of them."
        )
    return f"The shares, the mean step and the fixes are those of stage {main + 1}."


def _measure(stage: analysis.Stage) -> int:
    return stage.end_ns - stage.start_ns


def _show(
    number: int, stage: analysis.Stage, verdict: Verdict | None, job_ns: int, *, is_main: bool
) -> JobStage:
    share_ratio = min(1.0, _measure(stage) / job_ns) if job_ns > 0 else None
    words = [] if share_ratio is None else [f"{percent(share_ratio)} of the job"]
    words.append(count_of(stage.step_count, "step"))
    is_judged = verdict is not None and verdict.suspect != ABSTENTION
    if verdict is not None and verdict.mean_step_ns is not None:
        words.append(f"mean {duration(verdict.mean_step_ns)}")
    headline = None if verdict is None else hedge(verdict.headline, verdict.confidence_ratio)
    return JobStage(
        number=number + 1,
        title=stage.title,
        model=stage.model,
        optimizer=stage.optimizer,
        dataset=stage.dataset,
        start_ns=stage.start_ns,
        end_ns=stage.end_ns,
        duration_ns=_measure(stage),
        share_ratio=share_ratio,
        first_step=stage.first,
        step_count=stage.step_count,
        measured_count=None if verdict is None else verdict.step_count,
        mean_step_ns=None if verdict is None else verdict.mean_step_ns,
        suspect=None if verdict is None else verdict.suspect,
        cause=None if verdict is None else verdict.cause,
        suspect_share_ratio=verdict.share_ratio if verdict is not None and is_judged else None,
        headline=headline,
        is_main=is_main,
        text=f"Stage {number + 1}, {stage.title}: {', '.join(words)}."
        + ("" if headline is None else f" {headline}"),
    )
