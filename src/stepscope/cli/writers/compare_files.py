"""A comparison as JUnit XML, for CI systems, and as Markdown, for a pull request.

The layout is the one that they have in common: `testsuites` holds a `testsuite` with its counts,
that a `testcase` for the contract and for each condition, with a `failure` where it failed and an
`error` where it could not be judged.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from stepscope import comparison
from stepscope.cli.writers import compare
from stepscope.cli.writers.markdown import markdown_table, markdown_text

SUITE = "stepscope compare"
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(payload: comparison.Comparison) -> str:
    """Write conditions and contract as JUnit XML."""
    cases = [_contract_case(payload)]
    for note in payload.notes:
        case = _case("the runs can be trusted")
        ET.SubElement(case, "error", message=_clean(note), type="record")
        cases.append(case)
    for result in payload.gate.conditions if payload.gate is not None else []:
        case = _case(result.condition)
        if result.outcome == "failed":
            ET.SubElement(case, "failure", message=_clean(result.explanation), type="condition")
        elif result.outcome == "unknown":
            ET.SubElement(case, "error", message=_clean(result.explanation), type="missing")
        ET.SubElement(case, "system-out").text = _clean(result.explanation)
        cases.append(case)
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
    }
    suites = ET.Element("testsuites", {"name": SUITE, **counts})
    suite = ET.SubElement(
        suites, "testsuite", {"name": SUITE, **counts, "skipped": "0", "time": "0"}
    )
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = _clean(payload.headline)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _contract_case(payload: comparison.Comparison) -> ET.Element:
    case = _case("the runs did the same work")
    allowed = payload.gate.allowed if payload.gate is not None else []
    broken = [t for t in payload.contract if t.standing == "different" and t.group not in allowed]
    if broken:
        groups = ", ".join(terms.group for terms in broken)
        failure = ET.SubElement(
            case, "failure", message=f"they differ in {groups}", type="contract"
        )
        failure.text = _clean("\n".join(line for terms in broken for line in _differences(terms)))
    standings = [f"{t.group}: {t.standing}" for t in payload.contract]
    ET.SubElement(case, "system-out").text = _clean("\n".join(standings))
    return case


def _differences(terms: comparison.ContractTerms) -> list[str]:
    return [
        f"{terms.group}: {item.name}: {item.base_value or 'not known'} -> "
        f"{item.other_value or 'not known'}"
        for item in terms.differences
    ]


def _case(name: str) -> ET.Element:
    return ET.Element("testcase", classname="stepscope.compare", name=_clean(name), time="0")


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_IN_XML.sub("\ufffd", text)


MAX_ROWS = 10
_MARKS = {"passed": "✅", "failed": "❌", "unknown": "❔", "not comparable": "❔"}


def markdown_of(payload: comparison.Comparison) -> str:
    """Write the comparison as Markdown."""
    lines = [f"### {markdown_text(payload.headline, 400)}", ""]
    names = (markdown_text(compare.run_name(run)) for run in (payload.base_run, payload.other_run))
    lines += [" → ".join(f"`{name}`" for name in names), ""]
    for note in payload.notes:
        lines += [markdown_text(note, 400), ""]
    if payload.gate is not None:
        lines += _gate(payload.gate)
    lines += _contract(payload.contract)
    if payload.steps is not None:
        lines += _steps(payload.steps)
    if payload.contributions is not None:
        lines += _contributions(payload.contributions)
    if payload.targets:
        lines += ["**Expected after the fix**", ""]
        outcomes = [
            (t.text, t.base_value, t.other_value, compare.describe_outcome(t))
            for t in payload.targets
        ]
        lines += markdown_table(("target", "base", "run", "reached"), outcomes)
    if payload.settings:
        lines += ["**Different settings**", ""]
        rows = [(f"{s.group}: {s.name}", s.base_value, s.other_value) for s in payload.settings]
        lines += markdown_table(("setting", "base", "run"), rows)
    return "\n".join(lines).rstrip() + "\n"


def _gate(gate: comparison.Gate) -> list[str]:
    rows = [
        (f"`{r.condition}`", _MARKS[r.outcome], r.outcome, r.explanation) for r in gate.conditions
    ]
    return [
        f"{_MARKS[gate.outcome]} **{gate.outcome}**: {markdown_text(gate.explanation, 400)}",
        "",
        *markdown_table(("condition", "", "", "numbers"), rows, max_length=300),
    ]


def _contract(terms: Sequence[comparison.ContractTerms]) -> list[str]:
    rows = [
        (group.group, item.name, item.base_value, item.other_value)
        for group, item in compare.unlike_terms(terms)
    ]
    if not rows:
        return []
    return ["**The runs did different work**", "", *markdown_table(("", "", "base", "run"), rows)]


def _steps(steps: comparison.StepChanges) -> list[str]:
    head, *rows = compare.tabulate_steps(steps)
    marked = [(*row[:-1], row[-1].replace("yes", "**yes**")) for row in rows]
    return [*markdown_table(head, marked), f"<sub>of {steps.share_of}</sub>", ""]


def _contributions(contributions: comparison.Contributions) -> list[str]:
    pairs = [(part.part, row) for part in contributions.parts for row in part.rows if row.change_ns]
    pairs.sort(key=lambda pair: -abs(pair[1].change_ns))
    shown = pairs[:MAX_ROWS]
    rows = [
        (
            compare.word(part),
            compare.contribution_name(row),
            compare.status_of(row),
            *compare.times_of(row),
        )
        for part, row in shown
    ]
    if not rows:
        return []
    rest = contributions.change_ns - sum(row.change_ns for _, row in shown)
    rows.append(("", "everything else", "", "", "", compare.signed(rest)))
    head = ("part", "what", "", "base", "run", "change of the mean step")
    lines = ["**Contributions**", "", *markdown_table(head, rows)]
    parts = {part for part, _ in shown}
    for part in contributions.parts:
        scaled = compare.scaling(part) if part.part in parts else None
        if scaled is not None:
            lines += [f"<sub>{compare.word(part.part)}: {scaled}</sub>", ""]
    return lines
