"""Limits, texts, charts and input that all sections of a report share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from stepscope import quantities, rule_feed, schema
from stepscope.rules import (
    TRAINING_PHASES,
    HistogramCounts,
    Rule,
    read_details,
    shares_of_total,
    summary,
)
from stepscope.run import JobStatistics, Run
from stepscope.views.options import shorten_name
from stepscope.views.profiling_report import blocks

MAX_NODES = 16
"""Upper limit of nodes that are shown individually."""
MAX_SERIES = 16
"""Upper limit of ranks, GPUs or loaders in one chart."""
MAX_ROWS = 64
"""Upper limit of the rows of a table with one per rank or GPU."""
MAX_NAME_LENGTH = 160
"""Upper limit of the characters of a name from the job."""
_WINDOW = (
    "record a trace of some steps with `stepscope run --start-step N --num-steps M -- CMD`, or "
    "with `stepscope capture RUN --steps N` while the job runs"
)

T = TypeVar("T")


def explain_missing_events(names: str, *, is_imported: bool) -> blocks.Text:
    """Explain missing events of a framework's profiler.

    Args:
        names: the events, as "CPU operator".
        is_imported: the run is of files of other tools.
    """
    if is_imported:
        return blocks.Text(text=f"The imported files contain no {names}.", tone="missing")
    return blocks.Text(text=f"No {names} was recorded: {_WINDOW}.", tone="missing")


def limit_items(items: Sequence[T], limit: int, plural: str) -> tuple[Sequence[T], str | None]:
    """Return at most *limit* items, and a text about the omitted ones.

    >>> limit_items([1, 2, 3], 2, "nodes")
    ([1, 2], 'and 1 more nodes')
    """
    omitted = len(items) - limit
    return items[:limit], f"and {quantities.count(omitted)} more {plural}" if omitted > 0 else None


def note_omitted(more: str | None) -> list[blocks.Block]:
    """Return a note about items that `limit_items` omitted."""
    return [blocks.Text(text=f"… {more}.", tone="note")] if more else []


def shorten(name: str) -> str:
    """Limit the length of a name."""
    return shorten_name(name, MAX_NAME_LENGTH)


def make_pie(title: str, parts: Mapping[str, float], share_of: str) -> blocks.Pie:
    """Draw a pie of the shares above 0."""
    slices = [
        blocks.Slice(name=shorten(name), share_ratio=round_figure(share))
        for name, share in parts.items()
        if share
    ]
    return blocks.Pie(title=title, share_of=share_of, slices=slices)


def make_phase_pies(phases: Mapping[str, float], when: str, share_of: str) -> list[blocks.Block]:
    """Draw three pies of the time of some steps: training and others, passes, phases."""
    training = sum(share for phase, share in phases.items() if phase in TRAINING_PHASES)
    other_share = sum(share for phase, share in phases.items() if phase not in TRAINING_PHASES)
    passes = shares_of_total({name: phases.get(name, 0.0) for name in ("forward", "backward")})
    of_passes = f"forward and backward passes in {share_of}"
    return [
        make_pie(f"{when}: TRAIN and others", {"TRAIN": training, "others": other_share}, share_of),
        *([make_pie(f"{when}: forward and backward", passes, of_passes)] if passes else []),
        make_pie(f"{when}: general framework operations", name_phases(phases), share_of),
    ]


def name_phases(shares: Mapping[str, float]) -> dict[str, float]:
    """Name the phases of steps for readers."""
    return {phase.replace("_", " "): share for phase, share in shares.items()}


def make_text_columns(*labels: str) -> list[blocks.Column]:
    """Make columns of text."""
    return [blocks.Column(label=label) for label in labels]


def make_number_columns(*labels: str, digits: int, unit: str = "") -> list[blocks.Column]:
    """Make columns of numbers."""
    return [blocks.Column(label=label, unit=unit, digits=digits) for label in labels]


def round_figure(value: float) -> float:
    """Round to six significant digits, which keeps the report small.

    >>> round_figure(0.123456789)
    0.123457
    """
    return float(f"{value:.6g}")


def round_figures(values: Iterable[float]) -> list[float]:
    """Round figures to six significant digits."""
    return [round_figure(value) for value in values]


class TimeUnit(NamedTuple):
    """Unit of durations in a chart or table."""

    unit: str
    per_s: float

    def of_s(self, seconds: float) -> float:
        """Convert seconds to the unit."""
        return round_figure(seconds * self.per_s)


def choose_time_unit(seconds: float) -> TimeUnit:
    """Choose the unit in which a duration is at least 0.1.

    >>> choose_time_unit(0.36).unit, choose_time_unit(0.05).unit
    ('s', 'ms')
    """
    for unit, per_s in (("s", 1.0), ("ms", 1e3)):
        if seconds * per_s >= 0.1:
            return TimeUnit(unit, per_s)
    return TimeUnit("µs", 1e6)


def draw_durations(
    histogram: HistogramCounts,
    *,
    title: str,
    axis: str,
    counted: str,
    series: str,
    median_s: float,
    marks_s: Mapping[str, float] | None = None,
) -> blocks.Histogram:
    """Draw the durations that a rule counted, in the unit of their median."""
    unit = choose_time_unit(median_s)
    return blocks.Histogram(
        title=title,
        axis=axis,
        unit=unit.unit,
        digits=2,
        counted=counted,
        edges=[unit.of_s(edge) for edge in histogram.edges_s],
        series=[blocks.Bars(name=series, counts=histogram.counts)],
        marks=[blocks.Mark(name=name, value=unit.of_s(s)) for name, s in (marks_s or {}).items()],
    )


STATISTICS = ("OverallSystemUsage", "OverallFrameworkMetrics")
"""Rules that only summarize; every report needs them."""
MAX_PARAGRAPHS = 3
MAX_SENTENCES = 24
"""Upper limit per rule; a rule may write a sentence per rank."""

D = TypeVar("D", bound=msgspec.Struct)


class RuleResults(msgspec.Struct, frozen=True, kw_only=True):
    """A run with the findings of rules."""

    run: Run
    job: JobStatistics
    job_is_damaged: bool
    """True if a file that `job` depends on cannot be read."""
    rules: dict[str, Rule[Any]]
    findings: dict[str, schema.Finding]

    def details(self, rule: str, details_type: type[D]) -> D | None:
        """Return the details of a rule; None if it was not evaluated or does not apply."""
        finding = self.findings.get(rule)
        return read_details(finding, details_type) if finding else None

    def why_missing(self, rule: str) -> str | None:
        """Return the reason for missing numbers of a rule; None if it has numbers."""
        finding = self.findings.get(rule)
        if finding is None:
            return f"{rule} was not evaluated, because it was not selected"
        return f"{rule} failed: {finding.error}" if finding.error else finding.missing

    def is_withheld(self, rule: str) -> bool:
        """Return whether the figures of a rule are withheld, because it reads damaged files."""
        return self.why_missing(rule) == rule_feed.UNREADABLE_INPUTS

    def check(self, rule: str, *, sentences: bool = True) -> list[blocks.Block]:
        """Describe the check and result of a rule: the first paragraph of its section."""
        finding = self.findings.get(rule)
        if finding is None:
            return self.missing(rule)
        shown_sentences, more = limit_items(
            finding.sentences if sentences else [], MAX_SENTENCES, "sentences"
        )
        return [
            self._show_check(finding),
            *self.missing(rule),
            *_write_paragraphs(shown_sentences),
            *note_omitted(more),
        ]

    def describe(
        self, rule: str, details_type: type[D], draw: Callable[[D], list[blocks.Block]]
    ) -> list[blocks.Block]:
        """Describe the check of a rule, and draw its details if it has any."""
        details = self.details(rule, details_type)
        return [*self.check(rule), *(draw(details) if details else [])]

    def missing(self, rule: str) -> list[blocks.Block]:
        """Return a block with the reason for missing numbers of a rule; empty if it has numbers."""
        reason = self.why_missing(rule)
        return [] if reason is None else [blocks.Text(text=_write_sentence(reason), tone="missing")]

    def _show_check(self, finding: schema.Finding) -> blocks.Check:
        rule = self.rules[finding.rule]
        minimum = getattr(rule.parameters, "patience", None)
        limit = (
            f" Decides after more than {quantities.count(minimum)} datapoints." if minimum else ""
        )
        pairs = (line.partition(":") for line in finding.rule_parameters.splitlines())
        return blocks.Check(
            rule=finding.rule,
            status=finding.status,
            summary=summary(type(rule)) + limit,
            parameters={name: value for name, _, value in pairs},
            datapoints=finding.datapoints,
            violations=finding.violations,
            triggered=finding.rule_triggered,
            last_at=quantities.utc_time(finding.last_ns) if finding.last_ns is not None else None,
            recommendation=finding.recommendation or None,
        )


def _write_paragraphs(sentences: Sequence[str]) -> list[blocks.Block]:
    """Write sentences as paragraphs; many of them as a list."""
    if len(sentences) > MAX_PARAGRAPHS:
        return [blocks.Text(text=sentences[0]), blocks.Listing(items=list(sentences[1:]))]
    return [blocks.Text(text=sentence) for sentence in sentences]


def _write_sentence(text: str) -> str:
    """Add a capital and a full stop; names of rules stay as they are."""
    body = text if text[1:2].isupper() else text[:1].upper() + text[1:]
    return body if body.endswith(".") else f"{body}."
