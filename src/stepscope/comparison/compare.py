"""Two runs side by side: what changed, and by how much more than noise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from stepscope.comparison.before_after import compare_before_after, measure_side
from stepscope.comparison.conditions import Condition
from stepscope.comparison.configuration import differences
from stepscope.comparison.differences import (
    FEWEST_RUNS,
    FEWEST_STEPS,
    Difference,
    PerStep,
    StepDifference,
    compare_names,
    compare_steps,
)
from stepscope.comparison.gate import ContractTerms, contract_terms, judge
from stepscope.comparison.parts import contributions
from stepscope.comparison.payload import (
    Comparison,
    FigureChange,
    NameChange,
    NameChanges,
    SettingChange,
    Source,
    StepChange,
    StepChanges,
)
from stepscope.comparison.per_step import time_by_name
from stepscope.comparison.programs import (
    Program,
    ProgramRun,
    source_of,
    steps_of_runs,
    why_no_steps,
)
from stepscope.comparison.workload_contract import ContractGroup, contract
from stepscope.cost import price_job
from stepscope.intervals import EMPTY
from stepscope.run import Run, job_borders, job_statistics

TOP = 20
SHARE_OF = {
    "watched": "the mean measured step of all ranks, evaluation left out",
    "recorded": "the mean step of all recordings, until its device work is done",
}
NOISE = (
    "beyond noise: 0 is outside the middle 95 % of the differences of runs whose steps are "
    "resampled in blocks, and the change is larger than the noise floor, which is how far halves "
    "of one run differ"
)
NOISE_BETWEEN = (
    "beyond noise: 0 is outside the 90 % interval of Hodges and Lehmann, made of how {}; the noise "
    "floor is half of its width"
)
DIFFERING = {
    "runs": "each run of one program differs from each of the other",
    "pairs": "the runs of each pair differ, recorded one after the other or at the same time",
}
TOO_FEW_RUNS = (
    f"; to know how runs of one program differ, {FEWEST_RUNS} of each are needed, so noise is "
    "judged by the steps of the two median runs"
)
FIGURES_OF = (
    "all of the run on all its machines, start-up and what follows training included; steps are "
    "those of the rank that took most, per second of the time from the first step to the last"
)
NO_RECORDINGS = "kernels and operators need recordings with steps in both runs; {} has none"


def comparison(
    base: Sequence[Run],
    other: Sequence[Run],
    *,
    epochs: float | None = None,
    conditions: Sequence[Condition] = (),
    allowed: Collection[ContractGroup] = (),
    strict: bool = False,
) -> Comparison:
    """What changed from one program to another.

    Args:
        base, other: one or more runs of each program. One stands for it in everything but noise;
            see `compare_steps`.
        epochs: make a full run of their costs.
        conditions, allowed, strict: what shall not hold; see `compare_gate.judge`.
    """
    runs = [[ProgramRun.of(each) for each in signals] for signals in (base, other)]
    source = source_of([*runs[0], *runs[1]])
    timed = [steps_of_runs(each, source) for each in runs]
    found = compare_steps(*timed) if all(timed) else None
    before, after = (
        Program(runs=each, steps=steps, place=place)
        for each, steps, place in zip(
            runs, timed, (0, 0) if found is None else found.chosen, strict=True
        )
    )
    chosen = before.stands, after.stands
    one, two = (run.signals for run in chosen)
    settings, same = differences(one, two)
    lacking = [run.signals.reader.info.run_id for run in chosen if not run.recorded]
    kernels, operators = (None, None) if lacking else _names(chosen)
    steps = None
    if found is not None and source is not None:
        steps = _steps(found, source, several=len(base) + len(other) > 2)
    figures, terms = _figures(one, two), contract_terms(contract(one, two))
    contributed = None
    if found is not None:
        recorded = (chosen[0].recorded, chosen[1].recorded)
        contributed = contributions(found, (one, two), recorded, watched=source == "watched")
    money = compare_before_after(measure_side(one), measure_side(two), epochs)
    compared = before.compared(), after.compared()
    notes = [*before.doubts(), *after.doubts()]  # comes last, for what is read shows them
    return Comparison(
        headline=_headline(found) + _other_batch(terms),
        base=compared[0],
        other=compared[1],
        steps=steps,
        steps_missing=None if found is not None else why_no_steps([*runs[0], *runs[1]]),
        contributions=contributed,
        contract=terms,
        gate=judge(
            conditions,
            terms,
            steps=None if steps is None else (steps.figures, steps.parts),
            figures=figures,
            allowed=allowed,
            strict=strict,
            doubts=notes,
        )
        if conditions
        else None,
        figures=figures,
        figures_of=FIGURES_OF,
        before_after=money,
        settings=[SettingChange(**asdict(each)) for each in settings],
        same_setting_count=same,
        kernels=kernels,
        operators=operators,
        names_missing=NO_RECORDINGS.format(" and ".join(lacking)) if lacking else None,
        notes=notes,
    )


# --- steps ---------------------------------------------------------------------------------------


def _steps(found: StepDifference, source: Source, *, several: bool) -> StepChanges:
    differing = DIFFERING.get(found.noise_of)
    noise = NOISE + (TOO_FEW_RUNS if several else "")
    return StepChanges(
        source=source,
        noise_of=found.noise_of,
        interval_percent=95 if differing is None else 90,
        share_of=SHARE_OF[source],
        figures=[_change(name, getattr(found, name)) for name in ("mean", "p50", "p95")],
        parts=[
            _change(name, part)
            for name, part in found.parts.items()
            if part.base_ns or part.other_ns
        ],
        noise=noise if differing is None else NOISE_BETWEEN.format(differing),
    )


def _change(name: str, found: Difference) -> StepChange:
    return StepChange(
        name=name,
        base_ns=found.base_ns,
        other_ns=found.other_ns,
        change_ns=found.change_ns,
        change_ratio=found.change_ns / found.base_ns if found.base_ns else None,
        estimate_ns=found.estimate_ns,
        low_ns=None if found.interval_ns is None else found.interval_ns[0],
        high_ns=None if found.interval_ns is None else found.interval_ns[1],
        noise_ns=found.noise_ns,
        beyond_noise=found.beyond_noise,
    )


def _other_batch(terms: Sequence[ContractTerms]) -> str:
    """A longer step may well be the faster one where it holds more samples."""
    other = any(each.group == "batch" and each.standing == "different" for each in terms)
    return " The batch is not the same in both runs." if other else ""


def _headline(found: StepDifference | None) -> str:
    if found is None:
        return "The steps of the two runs cannot be compared."
    mean = found.mean
    change = f"{mean.estimate_ns / 1e6:+.3g} ms"
    if mean.noise_ns is None:
        return (
            f"There are too few steps to tell a change of the mean step ({change}) from noise: "
            f"{FEWEST_STEPS} of each run are needed, one after the other."
        )
    if not mean.beyond_noise:
        return f"The mean step did not change by more than noise ({change})."
    size = f" ({abs(mean.estimate_ns) / mean.base_ns:.0%})" if mean.base_ns else ""
    direction = "shorter" if mean.estimate_ns < 0 else "longer"
    said = f"The mean step is {abs(mean.estimate_ns) / 1e6:.3g} ms{size} {direction}"
    # A part that moved by noise alone is no explanation.
    real = {name: part.estimate_ns for name, part in found.parts.items() if part.beyond_noise}
    if not real:
        return f"{said}; no single part of it changed by more than noise."
    name = max(real, key=lambda name: abs(real[name]))
    return f"{said}; the largest part: {name.replace('_', ' ')}, {real[name] / 1e6:+.3g} ms."


# --- the whole job -------------------------------------------------------------------------------


def _figures(base: Run, other: Run) -> list[FigureChange]:
    before, after = _of_job(base), _of_job(other)
    return [
        FigureChange(
            name=name,
            unit=unit,
            base=one,
            other=two,
            change_ratio=(two - one) / one if one and two is not None else None,
        )
        for (name, unit), one in before.items()
        if (two := after[name, unit]) is not None or one is not None
    ]


def _of_job(signals: Run) -> dict[tuple[str, str], float | None]:
    """Figures of one run by name and unit."""
    begin_ns, end_ns = job_borders(signals)
    job = job_statistics(signals.ranks, begin_ns, end_ns)
    count = len(signals.reader.statuses())
    priced = price_job(
        signals.reader.info,
        signals.nodes.values(),
        instance_count=count,
        duration_ns=job.duration_ns,
    )
    steps = max((len(rank.steps) for rank in signals.ranks), default=0)
    return {
        ("wall time", "ns"): float(job.duration_ns),
        ("training", "ns"): None if job.training_ns is None else float(job.training_ns),
        ("steps", "count"): float(steps) if steps else None,
        ("steps per second", "per_s"): steps / job.training_ns * 1e9
        if steps and job.training_ns
        else None,
        ("GPU busy", "ratio"): signals.mean_over_nodes("gpu_busy_ratio"),
        ("GPU memory", "bytes"): signals.mean_over_nodes("gpu_memory_used_bytes"),
        ("CPU busy", "ratio"): signals.mean_over_nodes("cpu_busy_ratio"),
        ("I/O wait", "ratio"): signals.mean_over_nodes("cpu_iowait_ratio"),
        ("memory", "bytes"): signals.mean_over_nodes("memory_used_bytes"),
        ("machines", "count"): float(count) if count else None,
        ("machine hours", "hours"): count * job.duration_ns / 3.6e12 if count else None,
        ("cost", "usd"): None if isinstance(priced, str) or not count else priced.job_usd,
    }


# --- kernels and operators -----------------------------------------------------------------------


def _names(runs: Sequence[ProgramRun]) -> tuple[NameChanges | None, NameChanges | None]:
    kernels = [_by_name(run, on_device=True) for run in runs]
    operators = [_by_name(run, on_device=False) for run in runs]
    return (
        _name_changes("kernels on devices, summed, per step", *kernels),
        _name_changes("operators' own time on the host, per step", *operators),
    )


def _by_name(run: ProgramRun, *, on_device: bool) -> PerStep:
    traces = [one.trace for one in run.recorded]
    ranks = [run.signals.rank_of(trace) for trace in traces]
    left_out = [EMPTY if rank is None else rank.steps.evaluation for rank in ranks]
    if on_device:
        extents = [one.steps.extent for one in run.recorded]
        return time_by_name(traces, extents, table="kernels", time="duration_ns", left_out=left_out)
    extents = [one.steps.host for one in run.recorded]
    return time_by_name(traces, extents, table="operators", time="host_self_ns", left_out=left_out)


def _name_changes(time_of: str, base: PerStep, other: PerStep) -> NameChanges | None:
    if not base and not other:
        return None
    found = compare_names(base, other, top=TOP)
    return NameChanges(
        time_of=time_of,
        base_ns=found.base_ns,
        other_ns=found.other_ns,
        change_ns=found.change_ns,
        rows=[NameChange(**asdict(row)) for row in found.rows],
        rest_ns=found.rest_ns,
        rest_count=found.rest_count,
    )
