"""Table of what is recorded on each release of a framework, from
benchmarks/results/versions.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "versions.json"
_SYMBOLS = {"right": "yes", "not possible": "impossible", "wrong": "no"}


def read_results() -> dict[str, Any]:
    """Read the results by framework."""
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    return results


def list_releases(name: str) -> str:
    """Write the table of a framework: a row for each kind of job, a column for each release, and
    what is missing."""
    entries = read_results()[name]
    jobs = list(dict.fromkeys(job for entry in entries.values() for job in entry["cells"]))
    lines = [f"| job | {' | '.join(entries)} |", f"|---|{'---|' * len(entries)}"]
    notes: dict[str, None] = {}
    for job in jobs:
        answers = [entry["cells"].get(job, "") for entry in entries.values()]
        words = [_SYMBOLS.get(answer.partition(":")[0].partition(";")[0], "") for answer in answers]
        lines.append(f"| {job} | {' | '.join(words)} |")
        notes |= {note: None for a in answers if (note := a.partition("; ")[2])}
    surroundings = ", ".join(_describe(release, entry) for release, entry in entries.items())
    dates = sorted({entry["date"] for entry in entries.values()})
    listed = "\n".join(f"- {note}" for note in notes)
    text = f"Jobs: {surroundings}. Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}."
    return "\n".join([*lines, "", text, *(["", listed] if listed else [])])


def _describe(release: str, entry: dict[str, Any]) -> str:
    companions = [f"{name} {version}" for name, version in entry.get("with", {}).items()]
    installed = f" ({', '.join(companions)})" if companions else ""
    return f"{release} on Python {entry['python']}{installed}"
