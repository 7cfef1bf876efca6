"""Table of what is recorded on each release of PyTorch, from benchmarks/results/versions.json."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "versions.json"
_SYMBOLS = {"right": "yes", "not possible": "impossible", "wrong": "no"}


def list_releases() -> str:
    """Write a row for each kind of job and a column for each release, and what is missing."""
    results = json.loads(RESULTS.read_text())
    jobs = list(dict.fromkeys(job for entry in results.values() for job in entry["cells"]))
    lines = [f"| job | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    notes: dict[str, None] = {}
    for job in jobs:
        answers = [entry["cells"].get(job, "") for entry in results.values()]
        words = [_SYMBOLS.get(answer.partition(":")[0].partition(";")[0], "") for answer in answers]
        lines.append(f"| {job} | {' | '.join(words)} |")
        notes |= {note: None for a in answers if (note := a.partition("; ")[2])}
    pythons = ", ".join(f"{release} on {e['python']}" for release, e in results.items())
    dates = sorted({entry["date"] for entry in results.values()})
    listed = "\n".join(f"- {note}" for note in notes)
    text = f"Python of the jobs: {pythons}. Measured {' to '.join(dates)}."
    return "\n".join([*lines, "", text, *(["", listed] if listed else [])])
