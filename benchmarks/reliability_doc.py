"""Tables of docs/reliability.md, from the counts of the fault suites."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepscope.quantities import duration, memory
from tests.fuzz.counts import FuzzCounts, load_counts
from tests.support.kills import KINDS, KillCounts
from tests.support.write_faults import SENTENCES, TARGETS, FaultCounts

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reliability.md"
KILLS = ROOT / "benchmarks" / "results" / "kills.json"
WRITE_FAULTS = ROOT / "benchmarks" / "results" / "write_faults.json"
KILLS_OF_EACH_KIND = 1000


class Kills(msgspec.Struct):
    """Counts of `benchmarks.kills`."""

    counts: dict[str, KillCounts] = {}
    """By kind."""
    revisions: list[str] = []
    """Revisions of stepscope that were counted."""

    @classmethod
    def load(cls) -> Kills:
        """Load the counts of earlier rounds."""
        if not KILLS.exists():
            return cls()
        return msgspec.json.decode(KILLS.read_bytes(), type=cls)


class WriteFaults(msgspec.Struct):
    """Counts of `benchmarks.write_faults`, and the place at which it continues."""

    counts: dict[str, FaultCounts] = {}
    """By process and directory."""
    revisions: list[str] = []
    """Revisions of stepscope that were counted."""
    round: int = 0
    target: int = 0
    call: int = 1

    @classmethod
    def load(cls) -> WriteFaults:
        """Load the counts of earlier jobs."""
        if not WRITE_FAULTS.exists():
            return cls()
        return msgspec.json.decode(WRITE_FAULTS.read_bytes(), type=cls)


def describe_kills() -> str:
    """Return the counts of `make soak`."""
    kills = Kills.load()
    rows = [
        f"| {kind.title} | {c.kills:,} | {c.runs:,} | {c.steps:,} | {c.windows:,} "
        f"| {c.lost:,} | {c.double:,} | {c.unreadable:,} | {c.unexplained:,} |\n"
        for name, kind in KINDS.items()
        for c in [kills.counts.get(name, KillCounts())]
    ]
    return (
        "| killed | kills | runs | steps | windows | lost | double | unreadable | unexplained |\n"
        f"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n{''.join(rows)}\n"
        f"The aim is {KILLS_OF_EACH_KIND:,} kills of each kind. "
        f"{_describe_revisions(kills.revisions)}"
    )


def describe_faults() -> str:
    """Return the counts of `make write-faults`."""
    faults = WriteFaults.load()
    titles = {"trainer": "training process", "watcher": "rules", "launcher": "`stepscope run`"}
    rows = []
    for number, (process, directory) in enumerate(TARGETS):
        c = faults.counts.get(f"{process} {directory}", FaultCounts())
        rounds = f"{faults.round + (number < faults.target)} of {len(SENTENCES)}"
        if number == faults.target and faults.call > 1:
            rounds += f", then to call {faults.call - 1}"
        rows.append(
            f"| {titles.get(process, process)} | {directory} | {rounds} | {c.call_count:,} "
            f"| {c.jobs:,} | {c.refused:,} | {c.recovered:,} | {c.incomplete:,} "
            f"| {sum(c.wrong.values()):,} |\n"
        )
    return (
        "| process | files | rounds | calls | jobs | not started | recovered | incomplete "
        f"| wrong |\n|---|---|---|---:|---:|---:|---:|---:|---:|\n{''.join(rows)}\n"
        f"{_describe_revisions(faults.revisions)}"
    )


def describe_fuzzing() -> str:
    """Return the counts of the last `make fuzz`."""
    rows = [
        f"| {name} | {c.cases:,}{_describe_successes(c)} | {c.defects:,} "
        f"| {duration(1e9 * c.slowest_s)} | {memory(c.peak_memory_bytes)} "
        f"| {c.revision or 'not recorded'} |\n"
        for name, c in load_counts().items()
    ]
    return (
        "| input | cases | defects | slowest | most memory | revision |\n"
        f"|---|---:|---:|---:|---:|---|\n{''.join(rows)}"
    )


def _describe_successes(counts: FuzzCounts) -> str:
    return "" if counts.successes is None else f", {counts.successes:,} of them with success"


def _describe_revisions(revisions: Sequence[str]) -> str:
    names = ", ".join(f"`{revision}`" for revision in revisions) or "not recorded"
    return f"Counted revisions: {names}."
