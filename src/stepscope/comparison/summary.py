"""Summary of a run: one flat mapping of names to numbers and texts.

    run_id, command, state, …       the run
    verdict/…                       bottleneck, cause, share, fix with the largest saving; shares of
                                    the whole job: `job_share_ratio` of the bottleneck, of
                                    `verdict/job_fix` either `job_saving_ratio` or, where it saves
                                    at most that, `job_bound_ratio`
    step/mean_ns, step/p95_ns, …    the steps, and parts of the mean step; each with `_error_ns` and
                                    `_floor_ns`, which a comparison needs
    share/SUSPECT_ratio             shares of all suspects, of `share/of`
    time/CLASS_ns, time/CLASS_ratio time of the whole job by class, mean over ranks
    job/…, memory/…                 figures of the whole job
    contract/GROUP/NAME             properties that have to be equal for the same work

Names of numbers end in their units. It is what other tools are sent, and `stepscope compare BASE
RUN` takes its file in place of a run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec

from stepscope import analysis, diagnosis, errors, rule_feed
from stepscope.comparison import programs
from stepscope.comparison.before_after import Side, compare_before_after
from stepscope.comparison.compare import SHARE_OF, write_headline
from stepscope.comparison.conditions import (
    JOB_FIGURES,
    SCOPE,
    Condition,
    Figures,
    compare_measured,
    measure_figures,
)
from stepscope.comparison.gate import evaluate_gate
from stepscope.comparison.payload import ComparedRun, Comparison, Source, StepChanges
from stepscope.comparison.step_changes import (
    StepDifference,
    StepFigure,
    compare_step_figures,
    measure_step_figures,
)
from stepscope.comparison.workload_contract import (
    GROUPS,
    ContractGroup,
    Terms,
    collect_terms,
    compare_terms,
)
from stepscope.run import (
    Run,
    count_cores,
    count_gpus,
    count_ranks,
    find_results,
    job_state,
    read_job_time,
    recall,
)

VERSION = 1
VERSION_KEY = "stepscope_summary"
SUMMARY = "summary"
"""Name of the stored result."""
_HEAD_BYTES = 4096
_REQUIRED = (
    "run_id", "verdict/suspect", "verdict/cause", "verdict/share_of", "verdict/headline",
    "verdict/share_ratio", "verdict/confidence_ratio",
)  # fmt: skip
_BEFORE = {"throughput": "steps", "machine_hours": "machines"}
"""Counts that are figures without a metric of their own, by the metric that follows them."""
_FIGURES: dict[str, tuple[str, str]] = {
    name: figure
    for metric, job_figure in JOB_FIGURES.items()
    for name, figure in (
        (_BEFORE.get(metric, metric), (_BEFORE.get(metric, ""), "count")),
        (metric, job_figure),
    )
    if figure[0]
}
"""Name and unit of the figures of a job by metric."""
NOISE = (
    "beyond noise: 0 is outside the 95% interval, which follows from the errors that the summaries "
    "state, and around the change the noise floor, the difference between halves of one run"
)
NO_NAMES = "summaries hold neither kernels nor operators"
NO_STEPS = "the summary of {} has no steps"
DIFFERENT_SOURCES = "one summary is of steps of a monitored job, the other of profiler traces"


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a run."""

    texts: dict[str, str]
    metrics: dict[str, float]
    """Finite numbers; what the run does not have is absent."""

    def encode(self) -> bytes:
        """Encode it as a JSON object."""
        flat: dict[str, Any] = {VERSION_KEY: VERSION, **self.texts, **self.metrics}
        return msgspec.json.format(msgspec.json.encode(flat), indent=2) + b"\n"

    def select(self, prefix: str) -> dict[str, float]:
        """Return the numbers whose names have a prefix, without it."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.metrics.items()
            if name.startswith(prefix)
        }


def describe_metric(name: str) -> str:
    """Describe a number of a summary in a sentence without its dot."""
    group, _, rest = name.partition("/")
    words = rest.rpartition("_")[0].replace("_", " ")
    if group == "verdict":
        return {
            "share_ratio": "Share of the bottleneck, of the time that verdict/share_of names",
            "confidence_ratio": "Expected share of verdicts like this that are right",
            "saving_ratio": "Largest predicted saving of a fix, as a share of the step",
            "job_share_ratio": "Share of the bottleneck, of the whole job",
            "job_saving_ratio": "Largest predicted saving of a fix, as a share of the whole job",
            "job_bound_ratio": "Share of the whole job that a fix saves at most",
        }[rest]
    if group == "step":
        for ending, meaning in (("error", "Standard error"), ("floor", "Noise floor")):
            if words.endswith(f" {ending}"):
                return f"{meaning} of the figure {words.removesuffix(f' {ending}')} of the step"
        if words in {"mean", "p50", "p95"}:
            return f"Wall time of a step, {words}"
        return "Measured steps of all ranks" if rest == "count" else f"Mean step: {words}"
    if group == "share":
        return f"Share of the suspect {words}, of the time that share/of names"
    if group == "time":
        unit = "Time" if rest.endswith("_ns") else "Share of the job's time"
        return f"{unit} in the class {words}, mean over ranks"
    return f"Whole run: {words.removesuffix(' per')}"


def get_summary(run: Run) -> RunSummary:
    """Return the summary of a run, which is stored with it once it has ended."""
    return recall(
        run,
        SUMMARY,
        RunSummary,
        lambda: summarise_run(run),
        uses_findings=False,
        min_remote_bytes=0,  # it is read of many runs at once
    )


def read_stored_summary(location: str) -> tuple[RunSummary | None, bool]:
    """Read the summary at the location of a run without opening the run: None if none of its files
    as they are is stored; and True if this version of stepscope made it."""
    results = find_results(location, uses_findings=False)
    return (None, False) if results is None else results.get_of_any_maker(SUMMARY, RunSummary)


def summarise_run(run: Run) -> RunSummary:
    """Summarise a run as it is, with the price that was applied to it."""
    info, verdict = run.reader.info, rule_feed.make_verdict(run)
    state = job_state(run.reader.statuses().values())
    texts: dict[str, str | None] = {
        "run_id": info.run_id,
        "command": " ".join(info.command),
        "created": _write_time(info.created_ns),
        "working_directory": info.working_directory,
        "nodes": ", ".join(sorted({node.host or name for name, node in run.nodes.items()})) or None,
        "git_revision": info.git_revision,
        "stepscope_version": info.stepscope_version,
        "state": None if state is None else state.value,
        "verdict/headline": verdict.headline,
        "verdict/stuck": None if verdict.stuck is None else verdict.stuck.headline,
        "verdict/suspect": verdict.suspect,
        "verdict/cause": verdict.cause,
        "verdict/share_of": verdict.share_of,
    }
    metrics: dict[str, float | None] = {
        "verdict/share_ratio": verdict.share_ratio,
        "verdict/confidence_ratio": verdict.confidence_ratio,
    }
    savings = {
        fix.title: fix.prediction.saving_ratio
        for fix in verdict.fixes
        if fix.prediction is not None
    }
    if savings:
        texts["verdict/fix"] = max(savings, key=savings.__getitem__)
        metrics["verdict/saving_ratio"] = max(savings.values())
    metrics |= {f"share/{item.suspect}_ratio": item.share_ratio for item in verdict.suspects}
    if verdict.suspects:  # where cores are missing, not the time of the bottleneck's share
        texts["share/of"] = verdict.suspects[0].share_of
    program = programs.ProgramRun.load(run)
    source = programs.find_source([program])
    times = program.load_step_times(source)
    if source is not None and times is not None:
        texts["step/source"] = source
        metrics["step/count"] = len(times.wall_ns)
        for name, figure in measure_step_figures(times).items():
            metrics[f"step/{name}_ns"] = figure.value_ns
            metrics[f"step/{name}_error_ns"] = figure.error_ns
            metrics[f"step/{name}_floor_ns"] = figure.floor_ns
    time = read_job_time(run)
    if time.missing is None:
        for key in analysis.JOB_CLASSES:
            metrics[f"time/{key}_ns"] = time.time_of(key)
            metrics[f"time/{key}_ratio"] = time.share_of(key)
    figures = measure_figures(run)
    for metric, (name, unit) in _FIGURES.items():
        metrics[f"job/{metric}_{unit}"] = figures[name, unit]  # type: ignore[index]
    texts["verdict/job_fix"], savings_of_job = _choose_fix(verdict)
    metrics |= savings_of_job
    metrics["verdict/job_share_ratio"] = _measure_job_share(verdict, time.share_of("steps"))
    metrics |= {
        "job/gpus_count": count_gpus(run),
        "job/cores_count": count_cores(run),
        "job/ranks_count": count_ranks(run),
    }
    if verdict.memory is not None:
        metrics["memory/host_peak_bytes"] = verdict.memory.peak_bytes
    for group, terms in collect_terms(run).items():
        texts |= {f"contract/{group}/{name}": value for name, value in terms.items()}
    return RunSummary(
        texts={name: text for name, text in texts.items() if text is not None},
        metrics={
            name: float(value)
            for name, value in metrics.items()
            if value is not None and math.isfinite(value)
        },
    )


def _choose_fix(verdict: diagnosis.Verdict) -> tuple[str | None, dict[str, float]]:
    """Choose the fix of the step with the largest predicted saving of the job: its title and that
    saving. Bounds, which are no predictions, count where there is no other."""
    fixes = [
        (fix.prediction.is_bound, fix.job_saving_ratio, fix.title)
        for fix in verdict.fixes
        if fix.prediction is not None and fix.job_saving_ratio
    ]
    if not fixes:
        return None, {}
    is_bound, ratio, title = min(fixes, key=lambda fix: (fix[0], -fix[1]))
    return title, {f"verdict/job_{'bound' if is_bound else 'saving'}_ratio": ratio}


def _measure_job_share(verdict: diagnosis.Verdict, steps_ratio: float | None) -> float | None:
    """Measure the share of the job that the bottleneck owns; None where that is not known.

    Args:
        steps_ratio: share of the job in steps.
    """
    suspect_ns, step_ns = verdict.suspect_step_ns, verdict.mean_step_ns
    if suspect_ns is None or not step_ns or steps_ratio is None:
        return None
    total_ns = sum(stage.duration_ns for stage in verdict.job_stages)
    main = next((stage for stage in verdict.job_stages if stage.is_main), None)
    return suspect_ns / step_ns * steps_ratio * (main.duration_ns / total_ns if main else 1.0)


def _write_time(epoch_ns: int) -> str:
    return datetime.fromtimestamp(epoch_ns // 10**9, UTC).isoformat()


def is_summary(path: Path) -> bool:
    """Return True for a file that begins like a summary."""
    try:
        with path.open("rb") as file:
            return f'"{VERSION_KEY}"'.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def read_summary(path: Path) -> RunSummary:
    """Read the file of a summary.

    Raises:
        UsageError: it is damaged, or of a newer version.
    """
    try:
        flat = msgspec.json.decode(path.read_bytes(), type=dict[str, str | float | int])
        version = flat.pop(VERSION_KEY)
        texts = {name: value for name, value in flat.items() if isinstance(value, str)}
        metrics = {name: float(value) for name, value in flat.items() if name not in texts}
        missing = [
            name
            for name in _REQUIRED
            if name not in (metrics if name.endswith("_ratio") else texts)
        ]
        if missing and version == VERSION:
            raise msgspec.DecodeError(f"it has no {missing[0]}")
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, OverflowError) as error:
        raise errors.UsageError(
            f"{path} is a damaged summary: {error}. Write it again with `stepscope export RUN --to "
            "summary -o FILE`."
        ) from None
    if version != VERSION:
        raise errors.UsageError(
            f"{path} is a summary of version {version}, and this stepscope reads version {VERSION}."
        )
    return RunSummary(texts=texts, metrics=metrics)


def compare_summaries(
    base_summary: RunSummary,
    other_summary: RunSummary,
    *,
    epochs: float | None = None,
    conditions: Sequence[Condition] = (),
    allowed: Collection[ContractGroup] = (),
    strict: bool = False,
) -> Comparison:
    """Compare two runs by their summaries; see `compare_runs`."""
    summaries = base_summary, other_summary
    terms = compare_terms(*map(_read_terms, summaries))
    compared = _compare_steps(base_summary, other_summary)
    difference, missing = (None, compared) if isinstance(compared, str) else (compared, None)
    figures = compare_measured(_read_figures(base_summary), _read_figures(other_summary))
    steps = None
    if difference is not None:
        source: Source = "watched" if base_summary.texts["step/source"] == "watched" else "recorded"
        steps = StepChanges(
            source=source,
            noise_of=difference.noise_of,
            interval_percent=difference.interval_percent,
            share_of=SHARE_OF[source],
            figures=[difference.mean, difference.p50, difference.p95],
            parts=[part for part in difference.parts.values() if part.base_ns or part.other_ns],
            noise=NOISE,
        )
    gate = None
    if conditions:
        gate = evaluate_gate(
            conditions,
            terms,
            steps=None if steps is None else (steps.figures, steps.parts),
            figures=figures,
            allowed=allowed,
            strict=strict,
            quality_issues=[],
        )
    return Comparison(
        headline=write_headline(compared, terms),
        base_run=_describe(base_summary),
        other_run=_describe(other_summary),
        steps=steps,
        steps_missing=missing,
        contributions=None,
        contract=terms,
        gate=gate,
        figures=figures,
        figures_of=SCOPE,
        before_after=compare_before_after(
            _make_side(base_summary), _make_side(other_summary), epochs
        ),
        targets=[],
        settings=[],
        same_setting_count=0,
        kernels=None,
        operators=None,
        names_missing=NO_NAMES,
        notes=[],
    )


def _compare_steps(base_summary: RunSummary, other_summary: RunSummary) -> StepDifference | str:
    """Compare the steps; or return the reason why they cannot be compared."""
    for summary in (base_summary, other_summary):
        needed = ("step/mean_ns", "step/p50_ns", "step/p95_ns", "step/count")
        if "step/source" not in summary.texts or not summary.metrics.keys() >= set(needed):
            return NO_STEPS.format(summary.texts.get("run_id"))
    if base_summary.texts["step/source"] != other_summary.texts["step/source"]:
        return DIFFERENT_SOURCES
    count = min(base_summary.metrics["step/count"], other_summary.metrics["step/count"])
    return compare_step_figures(_read_steps(base_summary), _read_steps(other_summary), round(count))


def _read_steps(summary: RunSummary) -> dict[str, StepFigure]:
    numbers = summary.select("step/")
    endings = ("_error_ns", "_floor_ns")
    return {
        name.removesuffix("_ns"): StepFigure(
            value_ns=value,
            error_ns=numbers.get(name.removesuffix("_ns") + "_error_ns"),
            floor_ns=numbers.get(name.removesuffix("_ns") + "_floor_ns"),
        )
        for name, value in numbers.items()
        if name.endswith("_ns") and not name.endswith(endings)
    }


def _read_terms(summary: RunSummary) -> dict[ContractGroup, Terms]:
    terms: dict[ContractGroup, Terms] = {group: {} for group in GROUPS}
    for name, text in summary.texts.items():
        head, _, rest = name.partition("/")
        group, _, term = rest.partition("/")
        for name_of_group in GROUPS:
            if head == "contract" and group == name_of_group:
                terms[name_of_group][term] = text
    return terms


def _read_figures(summary: RunSummary) -> Figures:
    return {
        (name, unit): summary.metrics.get(f"job/{metric}_{unit}")  # type: ignore[misc]
        for metric, (name, unit) in _FIGURES.items()
    }


def _describe(summary: RunSummary) -> ComparedRun:
    texts: Mapping[str, str] = summary.texts
    return ComparedRun(
        name=texts.get("run_id", ""),
        run_id=texts.get("run_id", ""),
        of_runs=1,
        command=texts.get("command", ""),
        suspect=next(
            (name for name in get_args(diagnosis.Suspect) if name == texts["verdict/suspect"]),
            "insufficient_evidence",
        ),
        cause=texts["verdict/cause"],
        share_ratio=summary.metrics["verdict/share_ratio"],
        share_of=texts["verdict/share_of"],
        confidence_ratio=summary.metrics["verdict/confidence_ratio"],
        headline=texts["verdict/headline"],
        step_count=round(summary.metrics.get("step/count", 0)),
        step_ns=None,
    )


def _make_side(summary: RunSummary) -> Side:
    metrics = summary.metrics
    job_ns = metrics.get("job/wall_time_ns")
    return Side(
        name=summary.texts.get("run_id", ""),
        gpu_mean=metrics.get("job/gpu_busy_ratio"),
        cpu_mean=metrics.get("job/cpu_busy_ratio"),
        is_training=False,
        batch=_read_terms(summary)["batch"],
        step_ns=metrics.get("step/mean_ns"),
        job_ns=None if job_ns is None else round(job_ns),
        instance_count=round(metrics.get("job/machines_count", 0)),
    )
