"""Evidence of stalls of the training thread, and lines of the script with their share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, quantities
from stepscope.diagnosis.causes.cause import CauseInputs
from stepscope.diagnosis.verdict import Evidence
from stepscope.quantities import count, count_of, duration, number, percent
from stepscope.run import Rank, Run, measure_callbacks

MOSTLY_RATIO = 0.995
"""From this share on, a line accounts for all of the time."""
_TRACING_PREFIX = "tf.function "
"""Start of the names of compilations that TensorFlow's tracing of functions is."""


def describe_checkpoints(run: Run) -> list[Evidence]:
    """Describe the number, size and duration of saves."""
    saves = [rank.spans.of("checkpoint") for rank in run.ranks]
    durations = np.concatenate([save.duration for save in saves])
    summary = analysis.summarize(durations)
    if summary is None:
        return []
    sizes = np.concatenate([save.value for save in saves])
    file_sizes = sizes[sizes > 0]
    written = f" and wrote {quantities.file_size(file_sizes.mean())}" if len(file_sizes) else ""
    return [
        Evidence(
            text=f"{count_of(summary.count, 'save')} took {duration(summary.mean)}{written} on "
            "average.",
            value=summary.mean,
            unit="ns",
            source="steps",
        )
    ]


def describe_compilations(run: Run) -> list[Evidence]:
    """Describe the compilations in the measured steps, and how many were recompilations."""
    durations, recompilation_count, ns_by_function = [], 0, Counter[str]()
    for rank in run.ranks:
        spans, _ = _select_measured(rank, "compile")
        durations.append(spans.duration)
        recompilation_count += int((spans.value > 0).sum())
        _count_names(spans, spans.duration, ns_by_function)
    summary = analysis.summarize(np.concatenate(durations))
    if summary is None:
        return []
    uses_jax = any(len(rank.spans.of("dispatch")) for rank in run.ranks)
    if uses_jax:
        compiler, reason = "JAX compiled", "shapes, types or static arguments"
    elif traces_functions(run.ranks):
        compiler, reason = "TensorFlow traced functions", "shapes, types or Python arguments"
    else:
        compiler, reason = "torch.compile ran", "input shapes"
    text = (
        f"{compiler} {count_of(summary.count, 'time')} in the measured steps and took "
        f"{duration(summary.mean)} on average; {count(recompilation_count)} were recompilations "
        f"for new {reason}."
    )
    if uses_jax:
        function, function_ns = max(ns_by_function.items(), key=lambda item: item[1])
        text += f" {function} takes {percent(function_ns / ns_by_function.total())} of that time."
    elif location := _find_compiled_call(run.ranks):
        text += f" Most of them are at {location}."
    return [Evidence(text=text, value=summary.count, unit="count", source="steps")]


def _find_compiled_call(ranks: Iterable[Rank]) -> str:
    """Find the line of the script during which most time was compiled, as file and line; '' if that
    is not most of the sampled time, or not sampled."""
    lines: Counter[str] = Counter()
    for rank in ranks:
        samples = rank.run.stack_samples(rank.process)
        inside = np.flatnonzero(intervals.contains(_compilations(rank), samples.t_ns))
        for row in inside.tolist():
            frames = analysis.parse_stack(samples.stacks[samples.stack[row]])
            user = [frame for frame in frames if not frame.library]
            # What inductor generates is no code of the user.
            if user and "torchinductor" not in user[-1].file:
                file = user[-1].file.rpartition("/")[2]
                lines[f"{file}:{samples.user_line[row]}"] += int(samples.weight_ns[row])
    location, time_ns = max(lines.items(), key=lambda item: item[1], default=("", 0))
    return location if 2 * time_ns > lines.total() else ""


def traces_functions(ranks: Iterable[Rank]) -> bool:
    """Return True if TensorFlow traced functions."""
    return any(
        spans.names[name].startswith(_TRACING_PREFIX)
        for rank in ranks
        for spans in [rank.spans.of("compile")]
        for name in set(spans.name.tolist())
    )


def describe_compiled_calls(run: Run) -> list[Evidence]:
    """Describe the calls of functions compiled by JAX: their number and mean duration, without the
    compilations in them."""
    count_by_name, total_ns, call_count, step_count = Counter[str](), 0, 0, 0
    for rank in run.ranks:
        spans, measured_count = _select_measured(rank, "dispatch")
        _count_names(spans, np.ones(len(spans), dtype=np.int64), count_by_name)
        total_ns += int(
            spans.duration.sum() - intervals.overlap(spans.intervals, _compilations(rank)).sum()
        )
        call_count += len(spans)
        step_count += measured_count
    if not call_count:
        return []
    ((function, most_count),) = count_by_name.most_common(1)
    return [
        Evidence(
            text=f"{number(call_count / step_count)} calls of compiled functions per step take "
            f"{duration(total_ns / call_count)} each, {percent(most_count / call_count)} of them "
            f"of {function}.",
            value=call_count / step_count,
            unit="count",
            source="steps",
        )
    ]


def _compilations(rank: Rank) -> intervals.Intervals:
    return intervals.union(rank.spans.of("compile").intervals)


def _count_names(spans: analysis.Spans, amounts: NDArray[np.int64], totals: Counter[str]) -> None:
    """Add an amount per span to the total of its name."""
    for name, amount in zip(spans.name.tolist(), amounts.tolist(), strict=True):
        totals[spans.names[name]] += amount


class _GarbageCollections(msgspec.Struct, frozen=True, kw_only=True):
    """Garbage collections in the measured steps of all ranks."""

    durations: NDArray[np.int64]
    """Nanoseconds."""
    step_count: int
    line: str
    """User code line with the longest total time in collections; '' where none was recorded."""
    line_ratio: float
    """Share of the collection time at that line."""


def _find_collections(run: Run) -> _GarbageCollections:
    durations, ns_by_line, step_count = [np.empty(0, dtype=np.int64)], Counter[str](), 0
    for rank in run.ranks:
        spans, measured_count = _select_measured(rank, "garbage_collection")
        spans = spans.on_thread(rank.steps.thread)
        durations.append(spans.duration)
        step_count += measured_count
        _count_names(spans, spans.duration, ns_by_line)
    line, line_ns = max(ns_by_line.items(), key=lambda item: item[1], default=("", 0))
    return _GarbageCollections(
        durations=np.concatenate(durations),
        step_count=step_count,
        line=line,
        line_ratio=line_ns / max(1, ns_by_line.total()),
    )


def name_collections(run: Run) -> str:
    """Name garbage collection with the line where most of it happens."""
    collections = _find_collections(run)
    mostly = "" if collections.line_ratio >= MOSTLY_RATIO else "mostly "
    location = f" ({mostly}at {collections.line})" if collections.line else ""
    return f"garbage collection{location}"


def describe_collections(run: Run) -> list[Evidence]:
    """Describe the number, duration and location of garbage collections."""
    collections = _find_collections(run)
    summary = analysis.summarize(collections.durations)
    if summary is None:
        return []
    location = (
        f", {percent(collections.line_ratio)} of that time at {collections.line}"
        if collections.line
        else ""
    )
    return [
        Evidence(
            text=f"Python collected garbage {count_of(summary.count, 'time')} in "
            f"{count_of(collections.step_count, 'step')}, {duration(summary.mean)} on "
            f"average{location}.",
            value=summary.mean,
            unit="ns",
            source="steps",
        )
    ]


def _select_measured(rank: Rank, kind: str) -> tuple[analysis.Spans, int]:
    """Select the spans of one kind that start in a rank's measured steps, and count these steps."""
    is_measured = rank.steps.measured()
    steps = intervals.Intervals(rank.steps.start[is_measured], rank.steps.end[is_measured])
    spans = rank.spans.of(kind)
    return spans.take(intervals.contains(intervals.union(steps), spans.start)), int(
        is_measured.sum()
    )


MIN_LINE_RATIO = 0.01
"""Lines with a smaller share of the step are not named."""


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line and its share of the step."""

    line: analysis.HostLine
    share: float

    @property
    def location(self) -> str:
        """File and line, or library and function."""
        file = self.line.file.rpartition("/")[2]
        return f"{file}:{self.line.line}" if self.line.line else file

    @property
    def name(self) -> str:
        """Function of the script with file and line in parentheses, else the location."""
        if self.line.line and self.line.function not in {"", "<module>"}:
            return f"{self.line.function.replace('.<locals>', '')} ({self.location})"
        return self.location

    @property
    def is_changeable(self) -> bool:
        """True for a line of the script, and for a hook of its trainer."""
        return self.line.line > 0 or analysis.is_hook(self.line.file)

    def describe(self) -> Evidence:
        """Describe the line by its share of the step."""
        source = f" ({self.line.source})" if self.line.source else ""
        text = f": {self.line.text}" if self.line.text else "."
        return Evidence(
            text=f"{self.name} takes {percent(self.share)} of step time{source}{text}",
            value=self.share,
            unit="ratio",
            source="steps",
        )


def describe_callbacks(inputs: CauseInputs) -> list[Evidence]:
    """Describe the callback or logger of the trainer that takes the most step time, if it is
    sizeable; delayed like the other work between the phases."""
    totals = Counter[str]()
    wall_ns = 0
    delayed = inputs.split.core_waits.outside.get("other", 0.0)
    with_core = (1 - delayed) / (1 - inputs.shares.without_core)
    for rank in inputs.run.ranks:
        totals.update(measure_callbacks(rank))
        wall_ns += int(rank.steps.wall_ns[rank.steps.measured()].sum())
    for name, total_ns in totals.most_common(1):
        share = total_ns / max(1, wall_ns) * with_core
        if share >= MIN_LINE_RATIO:
            text = f"The callback {name} takes {percent(share)} of step time."
            return [Evidence(text=text, value=share, unit="ratio", source="steps")]
    return []


def list_lines(
    inputs: CauseInputs, *causes: analysis.HostCause, phases: tuple[str, ...] = ()
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
