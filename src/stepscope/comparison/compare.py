"""Comparison of two programs: changes, their contributions and noise, and the headline."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stepscope import intervals, quantities
from stepscope.comparison import programs, step_changes
from stepscope.comparison.before_after import compare_before_after, measure_side
from stepscope.comparison.conditions import SCOPE, Condition, compare_figures, evaluate_targets
from stepscope.comparison.contributions import find_contributions
from stepscope.comparison.gate import evaluate_gate
from stepscope.comparison.names import (
    NameChanges,
    TimeByName,
    compare_names,
    compare_settings,
    measure_time_by_name,
)
from stepscope.comparison.payload import Comparison, Source, StepChanges
from stepscope.comparison.step_changes import MIN_RUNS, MIN_STEPS
from stepscope.comparison.workload_contract import ContractGroup, ContractTerms, compare_contracts
from stepscope.quantities import change, count_of
from stepscope.run import RecordedWork, Run

TOP = 20
LOADER_PARTS = ("data_loader", "data_wait")
MIN_HOLD_RATIO = 0.1
"""A data loader holds the steps from this share of the mean step on."""
MAX_FREE_RATIO = 0.1
"""It no longer does at this share of its former time, or less."""
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
        [programs.ProgramRun.load(run) for run in runs] for runs in (base_runs, other_runs)
    )
    all_runs = [*base_program_runs, *other_program_runs]
    source = programs.find_source(all_runs)
    base_program, other_program, difference = _compare_programs(
        base_program_runs, other_program_runs, source
    )
    representatives = (base_program.representative, other_program.representative)
    base_run, other_run = representatives[0].run, representatives[1].run
    settings, same_count = compare_settings(base_run, other_run)
    traceless = [run.name for run in representatives if not run.works]
    kernels, operators = (None, None) if traceless else _compare_all_names(*representatives)
    steps = contributions = None
    missing = programs.explain_missing_steps(all_runs)
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
        headline=write_headline(difference or missing, terms),
        base_run=descriptions[0],
        other_run=descriptions[1],
        steps=steps,
        steps_missing=None if difference is not None else missing,
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
    base_runs: list[programs.ProgramRun],
    other_runs: list[programs.ProgramRun],
    source: Source | None,
) -> tuple[programs.Program, programs.Program, step_changes.StepDifference | None]:
    """Compare the steps of two programs, which determines the runs that represent them."""
    base_times = programs.load_all_step_times(base_runs, source)
    other_times = programs.load_all_step_times(other_runs, source)
    difference = (
        step_changes.compare_steps(base_times, other_times) if base_times and other_times else None
    )
    base_index, other_index = (0, 0) if difference is None else difference.representatives
    return (
        programs.Program(runs=base_runs, steps=base_times, representative_index=base_index),
        programs.Program(runs=other_runs, steps=other_times, representative_index=other_index),
        difference,
    )


def _list_step_changes(
    difference: step_changes.StepDifference, source: Source, *, has_repeats: bool
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
    base_run: programs.ProgramRun, other_run: programs.ProgramRun
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


def _measure_names(run: programs.ProgramRun, table: str, time: str) -> TimeByName:
    """Measure the time by name within the steps: of operators on the host, else on devices."""
    steps = [work.steps.host if table == "operators" else work.steps.extent for work in run.works]
    return measure_time_by_name(
        [work.trace for work in run.works],
        steps,
        excluded=[_find_evaluation(run, work) for work in run.works],
        table=table,
        time=time,
    )


def _find_evaluation(run: programs.ProgramRun, work: RecordedWork) -> intervals.Intervals:
    rank = run.run.rank_of(work.trace)
    return intervals.EMPTY if rank is None else rank.steps.evaluation


MIN_NAMED_SHARE = 0.01
"""Smallest change of a part that the headline names, as a share of the mean step."""
MAX_NAMED = 3
"""Limit of changes in a sentence."""
DIFFERENT_WORK = "The runs did different work ({}), so a change of step time may come from that. "
DIFFERENT_CONDITIONS = " The runs also differ in {}."


def describe_last_run(run: Run, last: Run) -> str | None:
    """Set a run beside the last completed one of its command, see `find_last_run`.

    Returns:
        A sentence; None where the steps cannot be compared or did different work.
    """
    before, after = programs.ProgramRun.load(last), programs.ProgramRun.load(run)
    *_, difference = _compare_programs([before], [after], programs.find_source([before, after]))
    if difference is None or _list_different_work(compare_contracts(last, run)):
        return None
    age = quantities.duration(run.reader.info.created_ns - last.reader.info.created_ns)
    change_text = _describe_change(difference)
    return f"Beside the last completed run of this command, {age} before: {change_text}"


def write_headline(
    difference: step_changes.StepDifference | str, contract: Sequence[ContractTerms]
) -> str:
    """Write the headline of a comparison.

    Args:
        difference: difference of the steps, or the reason why they cannot be compared.
        contract: the work of both runs. Different software is often what is compared, so it is not
            named. Steps of another model or batch do not compare, which comes first.
    """
    if isinstance(difference, str):
        return f"The steps of the two runs cannot be compared: {difference}."
    names = _list_different_work(contract)
    sentence, listed = _describe_change(difference), ", ".join(names)
    if {"model", "batch"} & set(names):
        return DIFFERENT_WORK.format(listed) + sentence
    return sentence + (DIFFERENT_CONDITIONS.format(listed) if names else "")


def _list_different_work(contract: Sequence[ContractTerms]) -> list[str]:
    return [
        name
        for terms in contract
        if terms.standing == "different" and terms.group != "software"
        for name in _name_difference(terms)
    ]


def _name_difference(terms: ContractTerms) -> list[str]:
    """Name what differs: the devices and counts of the hardware, other groups as a whole."""
    if terms.group != "hardware":
        return [terms.group]
    return [item.name for item in terms.differences if item.standing == "different"]


def _describe_change(difference: step_changes.StepDifference) -> str:
    mean, p50 = difference.mean, difference.p50
    if mean.noise_ns is None or mean.low_ns is None or mean.high_ns is None:
        return (
            f"Steps are {_describe_shift(mean)}; too few to tell that from noise: at least "
            f"{MIN_STEPS} consecutive steps of each run are needed."
        )
    parts = _select_parts(difference)
    changes = ", ".join(_describe_part(part, mean) for part in parts[:MAX_NAMED])
    if mean.beyond_noise:
        changes = changes or "no single part changed beyond noise"
        return f"Steps are {_describe_shift(mean)}; {changes}."
    interval = (
        f"with {count_of(difference.step_count, 'step')} the {difference.interval_percent}% "
        f"interval of the mean is {change(mean.low_ns, 'ns')} to {change(mean.high_ns, 'ns')}"
    )
    if p50.beyond_noise:
        return (
            f"The median step is {_describe_shift(p50)}{changes and f'; {changes}'}. The mean step "
            f"is {_describe_shift(mean, ', within noise')}; {interval}."
        )
    if changes:
        return f"Steps are {_describe_shift(mean, ', within noise')}; {changes}. W{interval[1:]}."
    return f"No change of the step beyond noise: mean {_describe_shift(mean)}; {interval}."


def _select_parts(difference: step_changes.StepDifference) -> list[step_changes.StepChange]:
    """Select the parts that explain a change, largest first: those that changed beyond noise."""
    limit_ns = MIN_NAMED_SHARE * difference.mean.base_ns
    parts = [
        part
        for part in difference.parts.values()
        if part.beyond_noise and abs(part.estimate_ns) >= limit_ns
    ]
    return sorted(parts, key=lambda part: -abs(part.estimate_ns))


def _describe_shift(figure: step_changes.StepChange, noise: str = "") -> str:
    """Describe a change, such as `1.26x faster: 178 → 141 ms`."""
    changed_ns = max(0.0, figure.base_ns + figure.estimate_ns)
    shift = _write_shift(figure.base_ns, changed_ns)
    if not figure.estimate_ns:
        return f"unchanged at {quantities.duration(changed_ns)}{noise}"
    if not figure.base_ns or not changed_ns:
        return f"{'faster' if figure.estimate_ns < 0 else 'slower'}{noise}: {shift}"
    ratio = figure.base_ns / changed_ns
    factor, direction = (ratio, "faster") if ratio > 1 else (1 / ratio, "slower")
    times = quantities.multiple(factor)
    if times == quantities.multiple(1):
        return f"nearly unchanged{noise}: {shift}"
    return f"{times} {direction}{noise}: {shift}"


def _describe_part(part: step_changes.StepChange, mean: step_changes.StepChange) -> str:
    """Describe the change of a part; of the data loader also that it holds the steps no longer."""
    changed_ns = max(0.0, part.base_ns + part.estimate_ns)
    shift = _write_shift(part.base_ns, changed_ns)
    is_free = (
        part.name in LOADER_PARTS
        and part.base_ns >= MIN_HOLD_RATIO * mean.base_ns
        and changed_ns <= MAX_FREE_RATIO * part.base_ns
    )
    if is_free:
        return f"the data loader no longer holds them ({shift})"
    return f"{part.name.replace('_', ' ')} {shift}"


def _write_shift(base_ns: float, changed_ns: float) -> str:
    """Write two durations, the unit once if it is the same."""
    base, changed = quantities.duration(base_ns), quantities.duration(changed_ns)
    value, _, unit = base.rpartition(" ")
    return f"{value if changed.endswith(f' {unit}') and ' ' not in value else base} → {changed}"
