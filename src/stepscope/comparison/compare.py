"""Comparison of two programs: changes, their contributions, and their noise."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stepscope.comparison.before_after import compare_before_after, measure_side
from stepscope.comparison.conditions import Condition
from stepscope.comparison.configuration import compare_settings
from stepscope.comparison.contributions import find_contributions
from stepscope.comparison.gate import evaluate_gate
from stepscope.comparison.headline import write_headline
from stepscope.comparison.job_figures import SCOPE, compare_figures
from stepscope.comparison.names import (
    NameChanges,
    TimeByName,
    compare_names,
    measure_time_by_name,
)
from stepscope.comparison.payload import Comparison, Source, StepChanges
from stepscope.comparison.programs import (
    Program,
    ProgramRun,
    explain_missing_steps,
    find_source,
    load_all_step_times,
)
from stepscope.comparison.step_changes import (
    MIN_RUNS,
    StepDifference,
    compare_steps,
)
from stepscope.comparison.targets import evaluate_targets
from stepscope.comparison.workload_contract import (
    ContractGroup,
    compare_contracts,
)
from stepscope.intervals import EMPTY, Intervals
from stepscope.run import RecordedWork, Run

TOP = 20
SHARE_OF = {
    "watched": "the mean measured step of all ranks, evaluation left out",
    "recorded": "the mean step of all traces, until its device work is done",
}
NOISE = (
    "beyond noise: 0 is outside the 95% interval, which covers the differences of runs with steps "
    "resampled in blocks, and around the change the noise floor, the difference between halves of "
    "one run"
)
NOISE_BETWEEN = (
    "beyond noise: 0 is outside the 90% Hodges-Lehmann interval of the differences between {}; the "
    "noise floor is half of its width"
)
PAIRINGS = {
    "runs": "each run of one program and each run of the other",
    "pairs": "the runs of each pair, recorded one after the other or at the same time",
}
TOO_FEW_RUNS = (
    f"; noise between runs of one program needs {MIN_RUNS} runs of each program, so noise is that "
    "of the steps of the two median runs"
)
NO_TRACES = "kernels and operators need traces with steps in both runs; missing in {}"


def compare_runs(
    base_runs: Sequence[Run],
    other_runs: Sequence[Run],
    *,
    epochs: float | None = None,
    conditions: Sequence[Condition] = (),
    allowed: Collection[ContractGroup] = (),
    strict: bool = False,
) -> Comparison:
    """Compare two programs.

    Args:
        base_runs, other_runs: one or more runs of each program. One represents its program in
            everything but noise; see `compare_steps`.
        epochs: epochs of a full run, for the cost.
        conditions, allowed, strict: conditions of failure; see `gate.evaluate_gate`.
    """
    base_program_runs, other_program_runs = (
        [ProgramRun.load(run) for run in runs] for runs in (base_runs, other_runs)
    )
    all_runs = [*base_program_runs, *other_program_runs]
    source = find_source(all_runs)
    base_program, other_program, difference = _compare_programs(
        base_program_runs, other_program_runs, source
    )
    representatives = (base_program.representative, other_program.representative)
    base_run, other_run = representatives[0].run, representatives[1].run
    settings, same_count = compare_settings(base_run, other_run)
    traceless = [run.run_id for run in representatives if not run.works]
    kernels, operators = (None, None) if traceless else _compare_all_names(*representatives)
    steps = contributions = None
    if difference is not None and source is not None:
        steps = _list_step_changes(difference, source, has_repeats=len(all_runs) > 2)
        contributions = find_contributions(
            difference,
            (base_run, other_run),
            (representatives[0].works, representatives[1].works),
            is_monitored=source == "watched",
        )
    figures, terms = compare_figures(base_run, other_run), compare_contracts(base_run, other_run)
    sides = measure_side(base_run), measure_side(other_run)
    targets = evaluate_targets(base_run, other_run, *sides)
    descriptions = base_program.describe(), other_program.describe()
    # Damage is complete only after all tables were read.
    issues = [*base_program.list_quality_issues(), *other_program.list_quality_issues()]
    gate = None
    if conditions:
        gate = evaluate_gate(
            conditions,
            terms,
            steps=None if steps is None else (steps.figures, steps.parts),
            figures=figures,
            allowed=allowed,
            strict=strict,
            quality_issues=issues,
        )
    return Comparison(
        headline=write_headline(difference, terms),
        base_run=descriptions[0],
        other_run=descriptions[1],
        steps=steps,
        steps_missing=None if difference is not None else explain_missing_steps(all_runs),
        contributions=contributions,
        contract=terms,
        gate=gate,
        figures=figures,
        figures_of=SCOPE,
        before_after=compare_before_after(*sides, epochs),
        targets=targets,
        settings=settings,
        same_setting_count=same_count,
        kernels=kernels,
        operators=operators,
        names_missing=NO_TRACES.format(" and ".join(traceless)) if traceless else None,
        notes=[*issues, *base_program.list_rounding(), *other_program.list_rounding()],
    )


# --- steps ---------------------------------------------------------------------------------------


def _compare_programs(
    base_runs: list[ProgramRun], other_runs: list[ProgramRun], source: Source | None
) -> tuple[Program, Program, StepDifference | None]:
    """Compare the steps of two programs, which determines the runs that represent them."""
    base_times = load_all_step_times(base_runs, source)
    other_times = load_all_step_times(other_runs, source)
    difference = compare_steps(base_times, other_times) if base_times and other_times else None
    base_index, other_index = (0, 0) if difference is None else difference.representatives
    return (
        Program(runs=base_runs, steps=base_times, representative_index=base_index),
        Program(runs=other_runs, steps=other_times, representative_index=other_index),
        difference,
    )


def _list_step_changes(
    difference: StepDifference, source: Source, *, has_repeats: bool
) -> StepChanges:
    pairing = PAIRINGS.get(difference.noise_of)
    noise = NOISE + (TOO_FEW_RUNS if has_repeats else "")
    return StepChanges(
        source=source,
        noise_of=difference.noise_of,
        interval_percent=difference.interval_percent,
        share_of=SHARE_OF[source],
        figures=[difference.mean, difference.p50, difference.p95],
        parts=[part for part in difference.parts.values() if part.base_ns or part.other_ns],
        noise=noise if pairing is None else NOISE_BETWEEN.format(pairing),
    )


# --- kernels and operators -----------------------------------------------------------------------


def _compare_all_names(
    base_run: ProgramRun, other_run: ProgramRun
) -> tuple[NameChanges | None, NameChanges | None]:
    kernels = _compare_names(
        *(_measure_names(run, "kernels", "duration_ns") for run in (base_run, other_run)),
        time_of="kernels on devices, summed, per step",
    )
    operators = _compare_names(
        *(_measure_names(run, "operators", "host_self_ns") for run in (base_run, other_run)),
        time_of="operators' own time on the host, per step",
    )
    return kernels, operators


def _compare_names(
    base_times: TimeByName, other_times: TimeByName, *, time_of: str
) -> NameChanges | None:
    if not base_times and not other_times:
        return None
    return compare_names(base_times, other_times, time_of=time_of, top=TOP)


def _measure_names(run: ProgramRun, table: str, time: str) -> TimeByName:
    """Measure the time by name within the steps: of operators on the host, else on devices."""
    steps = [work.steps.host if table == "operators" else work.steps.extent for work in run.works]
    return measure_time_by_name(
        [work.trace for work in run.works],
        steps,
        excluded=[_find_evaluation(run, work) for work in run.works],
        table=table,
        time=time,
    )


def _find_evaluation(run: ProgramRun, work: RecordedWork) -> Intervals:
    rank = run.run.rank_of(work.trace)
    return EMPTY if rank is None else rank.steps.evaluation
