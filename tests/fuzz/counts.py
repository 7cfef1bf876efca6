"""Counts of the last `make fuzz`, from which docs/reliability.md is written."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support.revision import source_revision

COUNTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "fuzz.json"


class FuzzCounts(msgspec.Struct, kw_only=True):
    """Cases of one decoder, or requests to the HTTP API, and what went wrong."""

    cases: int = 0
    defects: int = 0
    """Cases that ended in a crash, a time-out, too much memory, or an error that users do not get
    as a sentence; fuzzing of a decoder ends with the first one."""
    successes: int | None = None
    """Requests with the requested answer; None for a decoder."""
    slowest_s: float = 0.0
    peak_memory_bytes: int | None = None
    """Resident memory of the process; None where several share the work."""
    revision: str | None = None
    """Revision of stepscope; None where it was not recorded."""


def load_counts() -> dict[str, FuzzCounts]:
    """Load the counts by decoder."""
    if not COUNTS.exists():
        return {}
    return msgspec.json.decode(COUNTS.read_bytes(), type=dict[str, FuzzCounts])


def save_counts(name: str, counts: FuzzCounts) -> None:
    """Replace the counts of one decoder."""
    counts.revision = source_revision()
    content = {**load_counts(), name: counts}
    COUNTS.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
