"""Index of findings/: what surprised about libraries and formats, from the head of each script."""

from __future__ import annotations

import itertools
from pathlib import Path

FINDINGS = Path(__file__).resolve().parents[2] / "findings"
_SEEN_WITH = "Seen with "


def list_findings() -> str:
    """Return a section for each script: its finding, the versions, the command that repeats it.

    Raises:
        ValueError: the head of a script does not name versions.
    """
    lines = []
    for script in sorted(FINDINGS.glob("*.sh")):
        head = itertools.takewhile(
            lambda line: line[:1] == "#", script.read_text().splitlines()[1:]
        )
        text, mark, versions = " ".join(line[1:].strip() for line in head).partition(_SEEN_WITH)
        if not mark:
            raise ValueError(f"{script.name}: say in its head what it was seen with")
        seen_with = versions.partition(" The script ends")[0].rstrip(".")
        command = f"[`sh findings/{script.name}`](../findings/{script.name})"
        lines += [f"## `{script.stem}`", "", text.strip(), ""]
        lines += [f"Seen with {seen_with}. Repeat it with {command}.", ""]
    return "\n".join(lines)
