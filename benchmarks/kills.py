"""Kills of every process of a profiled job, by the thousand: is any step lost or counted twice?

    python -m benchmarks.kills [--kills 1000] [--minutes M] [--kinds NAME,…] [--jobs N]

Repeats the rounds of tests/faults/test_kills.py, N at a time, until each kind has this many kills,
or for M minutes; the kind with the fewest kills is next. Counts are added to
benchmarks/results/kills.json after every round, so that an interrupted run continues there;
`--fresh` starts from zero. The directory of a round in which something is wrong is kept and named.
docs/reliability.md is written from the counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from benchmarks.reliability_doc import DOCUMENT, KILLS, KILLS_OF_EACH_KIND, Kills
from tests.support.kills import KINDS, KillCounts, run_round
from tests.support.revision import add_revision
from tools.docs.blocks import write_document


class Rounds:
    """Rounds of kills, and the counts of all of them; usable from several threads."""

    def __init__(self, results: Kills, names: list[str], kills: int) -> None:
        self._results = results
        add_revision(results.revisions)
        self._names = names
        self._kills = kills
        counts = {name: results.counts.setdefault(name, KillCounts()) for name in names}
        self._numbers = {name: counts[name].runs for name in names}
        self._planned = {name: counts[name].kills for name in names}
        self._lock = threading.Lock()

    def repeat(self, deadline: float | None) -> None:
        """Run rounds until each kind has its kills, or to the deadline."""
        while deadline is None or time.monotonic() < deadline:
            with self._lock:
                name = min(self._names, key=self._planned.__getitem__)
                if self._planned[name] >= self._kills:
                    return
                self._planned[name] += KINDS[name].soak_kills
                self._numbers[name] += 1
                seed = f"{name} {self._numbers[name]}"
            self._count(name, seed)

    def _count(self, name: str, seed: str) -> None:
        """Run one round and add its counts."""
        directory = Path(tempfile.mkdtemp(prefix="stepscope-kills-"))
        kind = KINDS[name]
        try:
            outcome = run_round(kind, directory, seed, kind.soak_kills)
        except (AssertionError, subprocess.TimeoutExpired) as error:  # of the harness itself
            print(f"{name}: not counted: {error} in {directory}", file=sys.stderr, flush=True)
            return
        if outcome.is_clean:
            shutil.rmtree(directory)
        else:
            print(f"{name}: {outcome} in {directory}", file=sys.stderr, flush=True)
        with self._lock:
            self._planned[name] += outcome.kills - kind.soak_kills
            self._results.counts[name].add(outcome)
            KILLS.write_bytes(msgspec.json.format(msgspec.json.encode(self._results)) + b"\n")
            write_document(DOCUMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=KILLS_OF_EACH_KIND, help="kills of each kind")
    parser.add_argument("--minutes", type=float, help="time limit")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rounds at a time")
    parser.add_argument("--fresh", action="store_true", help="forget earlier counts")
    arguments = parser.parse_args()
    results = Kills() if arguments.fresh else Kills.load()
    deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    rounds = Rounds(results, arguments.kinds.split(","), arguments.kills)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for future in [pool.submit(rounds.repeat, deadline) for _ in range(arguments.jobs)]:
            future.result()


if __name__ == "__main__":
    main()
