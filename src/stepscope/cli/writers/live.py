"""A running job as text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from stepscope import diagnosis, quantities, schema
from stepscope.cli.text import clock_time
from stepscope.cli.writers.findings import delivery_lines, finding_line
from stepscope.cli.writers.generic import GAP, curve
from stepscope.watch import LiveView

if TYPE_CHECKING:
    from stepscope.watch import Pace, RecentCurves

MAX_FINDINGS = 10
LABEL_CELLS = 9
MIN_JOB_RATIO = 0.01
"""Classes with a smaller share of the job's time are left out."""
_STYLES = {
    schema.JobState.IN_PROGRESS: "green",
    schema.JobState.STOPPING: "yellow",
    schema.JobState.FAILED: "red",
    schema.JobState.STOPPED: "yellow",
    schema.JobState.UNKNOWN: "yellow",
}


def live_text(view: LiveView) -> Group:
    """Write the state of a job in a few lines."""
    lines: list[RenderableType] = [
        _head(view),
        *_death_lines(view),
        *_stuck_lines(view),
        *_memory_lines(view),
        _labelled("pace", pace_text(view.pace)),
        _Sparklines(view.curves),
        *([] if view.job is None else [_labelled("job", job_text(view.job))]),
        _labelled("suspect", view.headline or "not known yet"),
        _labelled("rules", _rules(view)),
    ]
    if view.findings:
        lines += [Text(), Text("Findings", style="bold")]
    for finding in view.findings[:MAX_FINDINGS]:
        lines.append(finding_line(finding))
        if finding.recommendation:
            lines.append(Text(f"    -> {finding.recommendation}", style="dim"))
    more = len(view.findings) - MAX_FINDINGS
    if more > 0:
        lines.append(Text(f"  and {more} more: stepscope rules check RUN", style="dim"))
    further = [*delivery_lines(view.deliveries), *view.notes]
    lines += [Text(line, style="dim") for line in further]
    return Group(*lines)


def _head(view: LiveView) -> Text:
    if view.state is None:
        return Text.assemble((view.name, "bold"), "  no status from a monitor yet")
    state = view.state.words
    facts = [state if view.reason is None else f"{state}: {view.reason}"]
    if view.duration_ns is not None:
        facts.append(f"for {_rough(view.duration_ns)}")
    if view.heard_ns and not view.state.is_final:
        facts.append(f"heard {_rough(time.time_ns() - view.heard_ns)} ago")
    text = " · ".join(facts)
    return Text.assemble((view.name, "bold"), "  ", (text, _STYLES.get(view.state, "")))


def _death_lines(view: LiveView) -> list[Text]:
    if view.death is None:
        return []
    lines = [Text(f"  - {line}") for line in view.death.lines]
    return [Text(view.death.headline, style="bold red"), *lines]


def _stuck_lines(view: LiveView) -> list[Text]:
    if view.stuck is None:
        return []
    style = "bold yellow" if view.stuck.is_harmless else "bold red"
    return [
        Text(view.stuck.headline, style=style),
        *(Text(f"  - {line}") for line in view.stuck.lines),
    ]


def _memory_lines(view: LiveView) -> list[Text]:
    if view.memory is None:
        return []
    text = " ".join([view.memory.headline, *view.memory.lines])
    line = _labelled("memory", text)
    if view.memory.is_growing:
        line.stylize("bold yellow", LABEL_CELLS)
    return [line]


class _Sparklines:
    """Curves of step time and utilization in a terminal; nothing in plain text: a pipe, a dumb
    terminal, or under `NO_COLOR`."""

    def __init__(self, curves: RecentCurves) -> None:
        self._curves = curves

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        if console.color_system is not None:
            curves, width = self._curves, options.max_width
            yield from _sparkline("step", curves.step_ns, quantities.duration, width)
            yield from _sparkline("GPU", curves.gpu_busy_ratio, quantities.percent, width, top=1)
            yield from _sparkline("CPU", curves.cpu_busy_ratio, quantities.percent, width, top=1)


def _sparkline(
    label: str,
    values: Sequence[float | None],
    format_value: Callable[[float], str],
    width: int,
    top: float | None = None,
) -> Iterator[Text]:
    """Draw a curve with its smallest and largest value on one line; nothing without values."""
    present = [value for value in values if value is not None]
    if present:
        ends = f"{format_value(min(present))} to {format_value(max(present))}"
        cells = curve(values, width - LABEL_CELLS - GAP - len(ends), top)
        head = Text(f"{label:<{LABEL_CELLS}}", style="dim")
        yield Text.assemble(head, (cells, "cyan"), " " * GAP, ends)


def _rules(view: LiveView) -> str:
    counts = " · ".join(
        f"{count} {schema.RuleStatus(status).words}" for status, count in view.rule_statuses.items()
    )
    if view.end_ns is None:
        return f"{counts} · the first scan has not ended"
    return f"{counts} · up to {clock_time(view.end_ns)}"


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{LABEL_CELLS}}", "dim"), text)


def _rough(ns: int) -> str:
    """Format a duration in whole seconds.

    >>> _rough(3_725_000_000_000), _rough(75_000_000_000), _rough(2_400_000_000)
    ('1 h 2 min', '75 s', '2 s')
    """
    return quantities.duration(1e9 * max(0, round(ns / 1e9)))


def job_text(job: diagnosis.JobAccount) -> str:
    """Format what the time of the job went to so far, with the share of the steps."""
    parts = [
        f"{part.title} {quantities.duration(part.time_ns)}"
        + (f" ({quantities.percent(part.share_ratio)})" if part.key == "steps" else "")
        for part in job.parts
        if part.share_ratio >= MIN_JOB_RATIO
    ]
    return f"{quantities.duration(job.duration_ns)}: {', '.join(parts)}"


def pace_text(pace: Pace) -> str:
    """Format step, speed, data wait and utilization, as far as known."""
    parts = ["no training step yet"]
    if pace.recording_has_ended:
        parts = [f"recording ended at step {pace.step_count}"]
    elif pace.steps_per_s is not None:
        parts = [
            f"step {pace.step_count}",
            f"{quantities.number(pace.steps_per_s)} steps/s",
            f"data wait {quantities.percent(pace.data_wait_ratio)} of step time",
        ]
    if pace.gpu_busy_ratio is not None:
        parts.append(f"GPU {quantities.percent(pace.gpu_busy_ratio)}")
    elif pace.cpu_busy_ratio is not None:
        parts.append(f"CPU {quantities.percent(pace.cpu_busy_ratio)}")
    return " · ".join(parts)
