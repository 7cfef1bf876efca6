"""Results of the benchmark on traces as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.diagnosis.catalogue import Scenario
from benchmarks.diagnosis.outcomes import Outcome
from benchmarks.diagnosis.page import (
    describe_answer,
    describe_machine,
    format_rate,
    format_table,
    list_incomplete_runs,
)
from benchmarks.diagnosis.results import Row
from benchmarks.diagnosis.scoring import Scores, count_grades

_PREFACE = """\
Verdicts on traces of torch.profiler alone. *Recorded* traces are those of the training jobs of the
benchmark, without stepscope: a harness starts the profiler after some steps, marks the steps,
exports ten of them and ends the job. *Drawn* traces are those of simulated jobs on a GPU. A verdict
that names the right suspect and states that its cause is unknown has the right suspect, not the
right cause. 95% intervals (Wilson) are in brackets.
"""
_TARGETS = ["target", "", "≥ 95%", "≥ 90%", "", "", "≤ 2%", "≤ 10%"]


def render_traces(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    omitted: Sequence[tuple[Scenario, str]],
    *,
    machine: Mapping[str, object],
) -> str:
    """Render the page.

    Args:
        rows: completed runs.
        outcomes: all runs.
        omitted: scenarios that are not scored, with the reason.
        machine: properties of the machine, by name.
    """
    parts = [
        "# Benchmark of the verdict on traces",
        _PREFACE,
        describe_machine(machine, rows),
        "## Scores",
        _scores(count_groups(rows)),
        "## Scenarios",
        _scenarios(rows),
        "## Not in traces",
        _omitted(omitted),
        *list_incomplete_runs(outcomes),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def count_groups(rows: Iterable[Row]) -> dict[str, tuple[int, Scores]]:
    """Count the runs and grades of recorded traces, of drawn ones, and of both."""
    by_group: dict[str, list[Row]] = {"recorded": [], "drawn": [], "all": []}
    for row in rows:
        by_group["drawn" if row.scenario.label.drawn else "recorded"].append(row)
        by_group["all"].append(row)
    return {
        name: (len(group), count_grades(row.grade for row in group))
        for name, group in by_group.items()
    }


def _scores(groups: Mapping[str, tuple[int, Scores]]) -> str:
    titles = ["traces", "runs", "suspect", "cause", "cause not named", "cause, where named"]
    titles += ["false alarms", "abstentions"]
    lines = []
    for name, (count, scores) in groups.items():
        rates = [scores.suspect, scores.cause, scores.unnamed, scores.named_cause]
        rates += [scores.false_alarms, scores.abstentions]
        lines.append([name, str(count), *map(format_rate, rates)])
    return format_table(titles, [*lines, _TARGETS])


def _scenarios(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        label, job = row.scenario.label, row.outcome.job
        planted = f"{label.suspect}: {' + '.join(label.causes)}"
        lines.append(
            [
                row.scenario.name + (" *" if label.held_out else ""),
                "drawn" if label.drawn else "recorded",
                "nothing" if label.healthy else planted,
                f"{job.severity:g}",
                describe_answer(row),
            ]
        )
    lines.sort(key=lambda line: (line[1] == "drawn", line[0], float(line[3])))
    titles = ["scenario", "traces", "planted", "severity", "verdict"]
    return (
        format_table(titles, lines)
        + "\n\n\\* held out; ✓ right, (✓) only the suspect is right, ✗ wrong, … abstention."
    )


def _omitted(omitted: Sequence[tuple[Scenario, str]]) -> str:
    by_reason: dict[str, list[str]] = {}
    for scenario, reason in omitted:
        cause = scenario.label.causes[0]
        by_reason.setdefault(reason, []).append(f"{scenario.name} ({cause})")
    return format_table(
        ["reason", "scenarios"],
        [[reason, ", ".join(names)] for reason, names in sorted(by_reason.items())],
    )
