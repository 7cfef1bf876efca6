"""The results as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.diagnosis.outcomes import Outcome, Tool
from benchmarks.diagnosis.results import SPLITS, Row, Summary, summarise
from benchmarks.diagnosis.scoring import Accuracy, Calibration, PredictionCheck, Rate

_PREFACE = """\
Real training jobs of a few seconds, each with a planted cause, run under each tool; what the tool
says at the end is set against the label. Severities and seeds go together: run 1 has the first
severity and seed 0, and so on. Shares are of all runs that ended, so an abstention counts
against them; in brackets the 95 % interval (Wilson) as if runs were independent, which those of
one scenario are not. Scenarios that are *held out* were written without knowledge of the verdict's
rules, and nobody looks at them while working on those.
"""
_LEFT_OUT = """\
Causes that only a GPU has come as drawn records: what the verdict makes of them is scored, how they
are recorded is not. The slow link between ranks is imitated inside the script.
"""


def render(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    *,
    machine: Mapping[str, object],
    plot_name: str,
) -> str:
    """The whole page.

    Args:
        plot_name: of the file with the reliability plot, beside the page.
    """
    tools = _tools(rows)
    summaries = [summarise(rows, tool, split) for tool in tools for split in SPLITS]
    parts = [
        "# Does the verdict find what was planted?",
        _PREFACE,
        _machine(machine, rows),
        "## Scores",
        _scores(summaries),
        *_calibrations(summaries, plot_name),
        "## Predicted savings, checked",
        _predictions(summaries),
        "## Every scenario",
        _scenarios(rows, tools),
        *_doubts(rows),
        *_lingering(rows),
        *_missing(outcomes),
        "## Left out",
        _LEFT_OUT,
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def curves(rows: Sequence[Row]) -> dict[str, Calibration]:
    """What the reliability plot shows: of all of stepscope's answers."""
    found = summarise(rows, "stepscope", "all")
    named = {"suspect": found.suspect_calibration, "cause": found.cause_calibration}
    return {name: curve for name, curve in named.items() if curve is not None}


def _tools(rows: Iterable[Row]) -> list[Tool]:
    seen = {row.outcome.job.tool for row in rows}
    order: tuple[Tool, ...] = ("stepscope", "TraceML")
    return [tool for tool in order if tool in seen]


def _machine(machine: Mapping[str, object], rows: Sequence[Row]) -> str:
    text = ", ".join(f"{name}: {value}" for name, value in machine.items())
    disturbed = sum(row.disturbed for row in rows)
    if disturbed:
        text += (
            f"\n\n**Others used the machine during {disturbed} of {len(rows)} runs**; a verdict on "
            "such a run may rightly speak of them, and its times say little."
        )
    return text


def _scores(summaries: Sequence[Summary]) -> str:
    titles = ["tool", "scenarios", "runs", "suspect", "cause", "sub-stage", "both of two"]
    titles += ["false alarms", "abstentions"]
    lines = []
    for summary in summaries:
        scores = summary.scores
        rates = [scores.suspect, scores.cause, scores.stage, scores.all_found]
        rates += [scores.false_alarms, scores.abstentions]
        lines.append([summary.tool, summary.split, str(summary.runs), *map(_rate, rates)])
    return _table(titles, lines)


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


def _calibration(what: str, found: Calibration) -> str:
    table = _table(
        ["confidence", "answers", "stated", what],
        [
            [
                f"{each.above:.0%} … {each.upto:.0%}",
                str(each.count),
                f"{each.stated_ratio:.0%}",
                f"{each.right_ratio:.0%}",
            ]
            for each in found.bins
        ],
    )
    return (
        f"{table}\n\nExpected calibration error {found.expected_error:.3f}, "
        f"Brier score {found.brier:.3f}."
    )


def _predictions(summaries: Sequence[Summary]) -> str:
    lines = []
    for summary in summaries:
        for which, found in (
            ("closest to the true one", summary.matching),
            ("first", summary.first),
        ):
            if found.predicted.count:
                lines.append([summary.tool, summary.split, which, *_accuracy(found)])
    if not lines:
        return "No tool predicted anything."
    titles = ["tool", "scenarios", "fix", "predicted", "sign right", "step: median error"]
    titles += ["within 25 %", "saving: median error", "in points"]
    return _table(titles, lines)


def _accuracy(found: Accuracy) -> list[str]:
    error = "" if found.median_error is None else f"{found.median_error:.0%}"
    saving = found.median_saving_ratio_error
    points = (
        "" if found.median_saving_error is None else f"{100 * found.median_saving_error:.0f} points"
    )
    rates = [_rate(found.predicted), _rate(found.sign_right)]
    of_saving = "" if saving is None else f"{saving:.0%}"
    return [*rates, error, _rate(found.within_quarter), of_saving, points]


def _scenarios(rows: Sequence[Row], tools: Sequence[Tool]) -> str:
    titles = ["scenario", "planted", "severity", *tools, "fix saves", "closest fix predicts"]
    lines = []
    for row in (row for row in rows if row.outcome.job.tool == tools[0]):
        name = row.scenario.name + (" *" if row.scenario.label.held_out else "")
        said = [_said(_other(rows, row, tool)) for tool in tools]
        label = row.scenario.label
        planted = f"{label.suspect}: {' + '.join(label.causes)}"
        lines.append(
            [
                name,
                "nothing" if label.healthy else planted,
                f"{row.outcome.job.severity:g}",
                *said,
                "" if row.saving_ratio is None else f"{row.saving_ratio:.0%}",
                _predicted(row.matching),
            ]
        )
    lines.sort(key=lambda line: (line[0].rstrip(" *"), float(line[2])))
    return (
        _table(titles, lines)
        + "\n\n\\* held out; ✓ right, (✓) the suspect only, ✗ wrong, … abstains."
    )


def _other(rows: Sequence[Row], like: Row, tool: Tool) -> Row | None:
    job = like.outcome.job
    for row in rows:
        its = row.outcome.job
        same = (its.scenario, its.severity, its.seed) == (job.scenario, job.severity, job.seed)
        if its.tool == tool and same:
            return row
    return None


def _said(row: Row | None) -> str:
    if row is None:
        return ""
    found, answer = row.grade, row.answer
    if found.abstained:
        return "…"
    if not found.planted:
        return "✗ " + _words(row) if found.false_alarm else "✓"
    if found.cause_right:
        return "✓"
    if found.suspect_right:
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


def _doubts(rows: Sequence[Row]) -> list[str]:
    doubtful = [row for row in rows if row.doubtful]
    if not doubtful:
        return []
    lines = [
        [row.scenario.name, f"{row.outcome.job.severity:g}", f"{row.saving_ratio:.0%}"]
        for row in doubtful
    ]
    return [
        "## Labels in doubt",
        "The fixed twin is hardly faster, so what was planted may not be what the job waits for.",
        _table(["scenario", "severity", "fix saves"], lines),
    ]


def _lingering(rows: Sequence[Row]) -> list[str]:
    names = sorted({row.scenario.name for row in rows if row.lingers})
    if not names:
        return []
    return [
        "## Still named after the fix",
        "The planted cause is named for the fixed twin as well, of at least one run: "
        + ", ".join(names)
        + ".",
    ]


def _missing(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [
        [each.job.tool, each.job.scenario, each.status, each.reason.replace("\n", " ")[:200]]
        for each in outcomes
        if each.status != "done"
    ]
    if not lines:
        return []
    return ["## Not scored", _table(["tool", "scenario", "", "why"], lines)]


def _rate(rate: Rate) -> str:
    ratio, interval = rate.ratio, rate.interval
    if ratio is None or interval is None:
        return ""
    return f"{rate.count}/{rate.of} = {ratio:.0%} ({interval[0]:.0%} … {interval[1]:.0%})"


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows
    )
