"""Results of the laboratory, and their file."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import msgspec

from benchmarks.laboratory.rounds import Measured

RESULTS = Path(__file__).resolve().parents[1] / "results" / "laboratory.json"


class RowResult(msgspec.Struct):
    """Rounds of a row, and where they were measured."""

    date: str
    machine: str
    revision: str
    """Of this build."""
    earlier: str | None
    """Revision of the earlier build."""
    remark: str
    measured: Measured


def load_results() -> dict[str, RowResult]:
    """Load the results of all rows that were measured, by name."""
    if not RESULTS.exists():
        return {}
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, RowResult])


def store_result(name: str, result: RowResult, names: list[str]) -> None:
    """Store the result of a row in place of an earlier one; rows without a name are dropped."""
    results = load_results() | {name: result}
    kept_results = {name: results[name] for name in names if name in results}
    staged = RESULTS.with_suffix(".json.tmp")
    staged.write_bytes(msgspec.json.format(msgspec.json.encode(kept_results), indent=1) + b"\n")
    staged.replace(RESULTS)


def describe_machine() -> str:
    """Describe this machine in words."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = names[0] if names else platform.machine()
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"


def read_revision(root: Path) -> str:
    """Read the commit of a checkout; it says where sources were changed since."""
    revision = _git(root, "log", "-1", "--format=%h")
    return f"{revision} with changes" if _git(root, "status", "--porcelain", "src") else revision


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
