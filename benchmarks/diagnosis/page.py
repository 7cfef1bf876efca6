"""Results as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.diagnosis.outcomes import Outcome, Tool
from benchmarks.diagnosis.results import SPLITS, Row, Summary, summarize
from benchmarks.diagnosis.scoring import Accuracy, Calibration, PredictionCheck, Rate

_PREFACE = """\
Real training jobs of a few seconds, each with a planted cause, run under each tool; the answer of
the tool at the end is compared with the label. Severities and seeds change together: run 1 has the
first severity and seed 0, and so on. Shares are of all completed runs, so abstentions lower them;
95% intervals (Wilson) are in brackets and assume independent runs, which those of one scenario are
not. Scenarios that are *held out* were written without knowledge of the verdict's rules, and
developers of the rules do not read them.
"""
_LIMITS = """\
Causes that require a GPU are drawn runs: their verdicts are scored, but not their recording. The
slow link between ranks is simulated inside the script.
"""


def render(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    *,
    machine: Mapping[str, object],
    plot_name: str,
) -> str:
    """Render the page.

    Args:
        rows: completed runs.
        outcomes: all runs.
        machine: properties of the machine, by name.
        plot_name: file name of the reliability plot, in the same directory.
    """
    tools = _tools(rows)
    summaries = [summarize(rows, tool, split) for tool in tools for split in SPLITS]
    parts = [
        "# Benchmark of the verdict",
        _PREFACE,
        describe_machine(machine, rows),
        "## Scores",
        _scores(summaries),
        *_calibrations(summaries, plot_name),
        "## Predicted savings, checked",
        _predictions(summaries),
        "## Scenarios",
        _scenarios(rows, tools),
        *_doubtful_labels(rows),
        *_lingering_causes(rows),
        *list_incomplete_runs(outcomes),
        "## Limits",
        _LIMITS,
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def collect_calibrations(rows: Sequence[Row]) -> dict[str, Calibration]:
    """Return the calibrations for the reliability plot, of all answers of stepscope."""
    summary = summarize(rows, "stepscope", "all")
    calibrations = {"suspect": summary.suspect_calibration, "cause": summary.cause_calibration}
    return {name: curve for name, curve in calibrations.items() if curve is not None}


def _tools(rows: Iterable[Row]) -> list[Tool]:
    tools = {row.outcome.job.tool for row in rows}
    order: tuple[Tool, ...] = ("stepscope", "TraceML")
    return [tool for tool in order if tool in tools]


def describe_machine(machine: Mapping[str, object], rows: Sequence[Row]) -> str:
    """Describe the machine, and whether other processes used it meanwhile."""
    text = ", ".join(f"{name}: {value}" for name, value in machine.items())
    disturbed = sum(row.disturbed for row in rows)
    if disturbed:
        text += (
            f"\n\n**Other processes used the machine during {disturbed} of {len(rows)} runs**; "
            "their verdicts may correctly name that, and their times are unreliable."
        )
    return text


def _scores(summaries: Sequence[Summary]) -> str:
    titles = ["tool", "scenarios", "runs", "suspect", "cause", "cause not named"]
    titles += ["sub-stage", "both causes", "false alarms", "abstentions"]
    lines = []
    for summary in summaries:
        scores = summary.scores
        rates = [scores.suspect, scores.cause, scores.unnamed, scores.stage]
        rates += [scores.all_found, scores.false_alarms, scores.abstentions]
        lines.append([summary.tool, summary.split, str(summary.runs), *map(format_rate, rates)])
    return format_table(titles, lines)


def _calibrations(summaries: Sequence[Summary], plot_name: str) -> list[str]:
    parts = []
    for summary in summaries:
        if summary.suspect_calibration is None or summary.split == "seen":
            continue
        parts.append(f"## Stated confidence: {summary.tool}, scenarios: {summary.split}")
        if summary.tool == "stepscope" and summary.split == "all":
            parts.append(f"![reliability of the stated confidence]({plot_name})")
        parts.append(_calibration("suspect right", summary.suspect_calibration))
        if summary.cause_calibration is not None:
            parts.append(_calibration("cause right", summary.cause_calibration))
    return parts


def _calibration(label: str, calibration: Calibration) -> str:
    table = format_table(
        ["confidence", "answers", "stated", label],
        [
            [
                f"{b.above:.0%} … {b.upto:.0%}",
                str(b.count),
                f"{b.stated_ratio:.0%}",
                f"{b.right_ratio:.0%}",
            ]
            for b in calibration.bins
        ],
    )
    return (
        f"{table}\n\nExpected calibration error {calibration.expected_error:.3f}, "
        f"Brier score {calibration.brier:.3f}."
    )


def _predictions(summaries: Sequence[Summary]) -> str:
    lines = []
    for summary in summaries:
        for label, accuracy in (
            ("closest to the true fix", summary.matching),
            ("first", summary.first),
        ):
            if accuracy.predicted.count:
                lines.append([summary.tool, summary.split, label, *_accuracy(accuracy)])
    if not lines:
        return "No tool made a prediction."
    titles = ["tool", "scenarios", "fix", "predicted", "correct sign", "step: median error"]
    titles += ["within 25%", "saving: median error", "in points"]
    return format_table(titles, lines)


def _accuracy(accuracy: Accuracy) -> list[str]:
    error = "" if accuracy.median_error is None else f"{accuracy.median_error:.0%}"
    saving = accuracy.median_saving_ratio_error
    points = (
        ""
        if accuracy.median_saving_error is None
        else f"{100 * accuracy.median_saving_error:.0f} points"
    )
    rates = [format_rate(accuracy.predicted), format_rate(accuracy.sign_right)]
    saving_text = "" if saving is None else f"{saving:.0%}"
    return [*rates, error, format_rate(accuracy.within_quarter), saving_text, points]


def _scenarios(rows: Sequence[Row], tools: Sequence[Tool]) -> str:
    titles = ["scenario", "planted", "severity", *tools, "fix saves", "closest fix predicts"]
    lines = []
    for row in (row for row in rows if row.outcome.job.tool == tools[0]):
        name = row.scenario.name + (" *" if row.scenario.label.held_out else "")
        answers = [describe_answer(_find_row_of(rows, row, tool)) for tool in tools]
        label = row.scenario.label
        planted = f"{label.suspect}: {' + '.join(label.causes)}"
        lines.append(
            [
                name,
                "nothing" if label.healthy else planted,
                f"{row.outcome.job.severity:g}",
                *answers,
                "" if row.saving_ratio is None else f"{row.saving_ratio:.0%}",
                _predicted(row.matching),
            ]
        )
    lines.sort(key=lambda line: (line[0].rstrip(" *"), float(line[2])))
    return (
        format_table(titles, lines)
        + "\n\n\\* held out; ✓ right, (✓) only the suspect is right, ✗ wrong, … abstention."
    )


def _find_row_of(rows: Sequence[Row], like: Row, tool: Tool) -> Row | None:
    job = like.outcome.job
    for row in rows:
        candidate = row.outcome.job
        same = (candidate.scenario, candidate.severity, candidate.seed) == (
            job.scenario,
            job.severity,
            job.seed,
        )
        if candidate.tool == tool and same:
            return row
    return None


def describe_answer(row: Row | None) -> str:
    """Mark an answer as right or wrong, with its words where it is not right."""
    if row is None:
        return ""
    grade, answer = row.grade, row.answer
    if grade.abstained:
        return "…"
    if not grade.planted:
        return "✗ " + _words(row) if grade.false_alarm else "✓"
    if grade.cause_right:
        return "✓"
    if grade.suspect_right:
        return "(✓)" if answer.cause is None else f"(✓) {answer.cause}"
    return "✗ " + _words(row)


def _words(row: Row) -> str:
    answer = row.answer
    return (
        f"{answer.suspect}: {answer.cause}"
        if answer.cause not in {None, "none"}
        else (answer.suspect or "")
    )


def _predicted(check: PredictionCheck | None) -> str:
    if check is None:
        return ""
    if check.predicted_ms is None:
        return "nothing"
    return f"{check.predicted_ms:.3g} ms, achieved {check.achieved_ms:.3g} ms"


def _doubtful_labels(rows: Sequence[Row]) -> list[str]:
    doubtful = [row for row in rows if row.doubtful]
    if not doubtful:
        return []
    lines = [
        [row.scenario.name, f"{row.outcome.job.severity:g}", f"{row.saving_ratio:.0%}"]
        for row in doubtful
    ]
    return [
        "## Doubtful labels",
        "The fixed twin is hardly faster, so the planted cause may not be the bottleneck.",
        format_table(["scenario", "severity", "fix saves"], lines),
    ]


def _lingering_causes(rows: Sequence[Row]) -> list[str]:
    names = sorted({row.scenario.name for row in rows if row.lingers})
    if not names:
        return []
    return [
        "## Causes that remain after the fix",
        "The verdict on the fixed twin of at least one run still names the planted cause: "
        + ", ".join(names)
        + ".",
    ]


def list_incomplete_runs(outcomes: Sequence[Outcome]) -> list[str]:
    """List the runs without an answer, as a section; empty without any."""
    lines = [
        [
            outcome.job.tool,
            outcome.job.scenario,
            outcome.status,
            outcome.reason.replace("\n", " ")[:200],
        ]
        for outcome in outcomes
        if outcome.status != "done"
    ]
    if not lines:
        return []
    return ["## Not scored", format_table(["tool", "scenario", "status", "reason"], lines)]


def format_rate(rate: Rate) -> str:
    """Format a rate with its confidence interval; empty where there is none."""
    ratio, interval = rate.ratio, rate.interval
    if ratio is None or interval is None:
        return ""
    return f"{rate.count}/{rate.total} = {ratio:.0%} ({interval[0]:.0%} … {interval[1]:.0%})"


def format_table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table."""
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows
    )
