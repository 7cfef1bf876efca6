"""Kills of every process of a profiled job, by the thousand: is any step lost or counted twice?

    python -m benchmarks.kills [--kills 1000] [--minutes M] [--kinds NAME,…]

Repeats the rounds of tests/faults/test_kills.py until each kind has this many kills, or for M
minutes. Counts are added to benchmarks/results/kills.json after every round, so that an
interrupted run continues there; `--fresh` starts from zero. The directory of a round in which
something is wrong is kept and named. docs/reliability.md is written from the counts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.reliability_doc import KILLS, write_reliability_doc
from tests.support.kills import KINDS, KillCounts, run_round


def load_counts() -> dict[str, KillCounts]:
    """Load the counts of earlier rounds by kind."""
    if not KILLS.exists():
        return {}
    return msgspec.json.decode(KILLS.read_bytes(), type=dict[str, KillCounts])


def count_round(name: str, counts: KillCounts) -> None:
    """Run one round and add its counts; an error of the harness itself is not counted."""
    directory = Path(tempfile.mkdtemp(prefix="stepscope-kills-"))
    outcome = run_round(KINDS[name], directory, f"{name} {counts.runs}")
    counts.add(outcome)
    if outcome.is_clean:
        shutil.rmtree(directory)
    else:
        print(f"{name}: {outcome} in {directory}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="kills of each kind")
    parser.add_argument("--minutes", type=float, help="time limit")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--fresh", action="store_true", help="forget earlier counts")
    arguments = parser.parse_args()
    results = {} if arguments.fresh else load_counts()
    deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    names = arguments.kinds.split(",")
    while remaining := [
        name for name in names if results.get(name, KillCounts()).kills < arguments.kills
    ]:
        for name in remaining:
            if deadline is not None and time.monotonic() > deadline:
                return
            count_round(name, results.setdefault(name, KillCounts()))
            KILLS.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
            write_reliability_doc()


if __name__ == "__main__":
    main()
