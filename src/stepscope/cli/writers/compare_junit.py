"""A comparison as JUnit XML: what CI systems show as tests.

The layout is the one that they have in common: `testsuites` holds a `testsuite` with its counts,
that a `testcase` for the contract and for each condition, with a `failure` where it failed and an
`error` where it could not be judged.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from stepscope.comparison import Comparison, ContractTerms

SUITE = "stepscope compare"
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(payload: Comparison) -> str:
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


def _contract_case(payload: Comparison) -> ET.Element:
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


def _differences(terms: ContractTerms) -> list[str]:
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
