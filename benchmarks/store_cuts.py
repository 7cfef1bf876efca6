"""Recordings into an object store that are cut at random instants: is a step lost or sent twice?

    python -m benchmarks.store_cuts --cuts 200 --seed 1
    python -m benchmarks.store_cuts --away 300

A cut is an outage of the store (connections that end, 503, 429, 403, 507) or `kill -9` of the
monitor, of the launcher and the job; a tenth of all other requests fails, too, before or after the
server has acted on them. With --away, one run in which the store is away for that many seconds.
The store is a server of moto on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from stepscope.quantities import file_size, memory
from tests.support.buckets import TestBucket, s3_server
from tests.support.store_cuts import CutCounts, CutRound, cut_run
from tests.support.store_outages import Fault, Outages, outages

CUTS_PER_RUN = 10
RESULTS = Path(__file__).parent / "results" / "store_cuts.json"
START_S, END_S = 10.0, 20.0
"""Time before and after the outage of --away."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cuts", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--away", type=float, metavar="S")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    total = CutCounts()
    with tempfile.TemporaryDirectory() as base, s3_server(Path(base) / "s3.log") as server:
        os.environ.update(server.environment, XDG_CACHE_HOME=f"{base}/cache")
        while total.cuts < arguments.cuts:
            directory = Path(base) / f"run-{total.runs}"
            directory.mkdir()
            seed = f"{arguments.seed}-{total.runs}"
            with outages(server.endpoint, seed=hash(seed)) as relay:
                url = TestBucket(server).url("runs/a")
                variables = {"AWS_ENDPOINT_URL": relay.endpoint}
                if arguments.away is not None:
                    total.add(stay_away(directory, url, relay, variables, arguments.away))
                    break
                cuts = min(CUTS_PER_RUN, arguments.cuts - total.cuts)
                counts = cut_run(directory, url, relay, variables, seed=seed, cuts=cuts)
            total.add(counts)
            print(f"run {seed}: {msgspec.json.encode(counts).decode()}", flush=True)
    print(
        f"{total.cuts} cuts in {total.runs} runs, {total.failed_requests} of {total.requests} "
        f"requests failed: {total.steps} steps, {total.lost} lost, {total.double} twice, "
        f"{total.unreadable} unreadable, {total.unconditional} unconditional writes; monitor up to "
        f"{memory(total.max_monitor_bytes)}, staging up to {file_size(total.max_staging_bytes)}"
    )
    arguments.output.parent.mkdir(exist_ok=True)
    arguments.output.write_bytes(msgspec.json.format(msgspec.json.encode(total)) + b"\n")
    return 0 if total.is_clean else 1


def stay_away(
    directory: Path, url: str, relay: Outages, variables: dict[str, str], seconds: float
) -> CutCounts:
    """Record one run while the store is away for some time."""
    away = CutRound(directory, url, relay, variables, "away")
    try:
        away.wait(START_S)
        relay.fault = Fault.CUT_BEFORE
        away.wait(seconds)
        relay.fault = Fault.NONE
        away.counts.cuts = 1
        away.wait(END_S)
        return away.end(by_kill=False)
    finally:
        away.job.end()


if __name__ == "__main__":
    sys.exit(main())
