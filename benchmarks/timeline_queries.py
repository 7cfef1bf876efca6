"""Cost of one timeline query at any zoom level of a large run.

    slices     `timeline-slices` of all tracks, payload and JSON, for windows of log-uniform width
               from a microsecond to the complete run at random positions, in one process that keeps
               the run open, as the server does
    pan        the same for windows that advance by a tenth of their width, at typical widths
    first      the track tree, and the complete run, in a process that has just opened the run

Each window is queried once, so that only data of other windows is in memory. CPU time is reported
next to wall time, because it is more reliable on a busy machine.

    python -m benchmarks.timeline_queries RUN [--windows 400]

Writes benchmarks/results/timeline_queries.json.
"""

import argparse
import json
import math
import random
import resource
import statistics
import sys
import time
from pathlib import Path

import msgspec

from stepscope.cores import available_cores
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.views import VIEWS, ViewOptions

HERE = Path(__file__).resolve().parent
MIN_WIDTH_NS = 1_000
PAN_NS = (100_000, 10_000_000, 300_000_000, 3_000_000_000)
PAN_STEPS = 30


class Session:
    """Session that keeps a run open."""

    def __init__(self, run):
        self.run = Run(open_run(run))
        self.tracks = ""
        self.end_ns = 0

    def tree(self):
        payload = VIEWS["timeline"](self.run, ViewOptions())
        text = msgspec.json.encode(payload)
        ids = [track.id for track in tracks_in(payload.groups) if track.kind != "counter"]
        self.tracks, self.end_ns = ",".join(ids), payload.end_after_ns
        return len(text)

    def slices(self, start, end):
        options = ViewOptions(tracks=self.tracks, from_ns=start, to_ns=end)
        return len(msgspec.json.encode(VIEWS["timeline-slices"](self.run, options)))


def tracks_in(groups):
    return [t for g in groups for t in (*g.tracks, *tracks_in(g.groups))]


def timed(function, *args):
    wall, cpu = time.perf_counter(), time.process_time()
    size = function(*args)
    return {
        "ms": (time.perf_counter() - wall) * 1e3,
        "cpu_ms": (time.process_time() - cpu) * 1e3,
        "bytes": size,
    }


def spread(costs):
    """Compute quantiles of each figure."""
    return {
        name: dict(zip(("p50", "p95"), quantiles([c[name] for c in costs]), strict=True))
        | {"largest": max(c[name] for c in costs)}
        for name in costs[0]
    }


def quantiles(values):
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94]


def random_windows(end_ns, count):
    rng = random.Random(1)
    for _ in range(count):
        width = int(math.exp(rng.uniform(math.log(MIN_WIDTH_NS), math.log(end_ns))))
        start = rng.randrange(max(1, end_ns - width))
        yield start, start + width


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--windows", type=int, default=400)
    options = parser.parse_args()
    session = Session(options.run)
    first = {"tree": timed(session.tree)}
    first["whole run"] = timed(session.slices, 0, session.end_ns)
    windows = random_windows(session.end_ns, options.windows)
    results = {
        "cores": available_cores(),
        "events": sum(trace.event_count for trace in session.run.traces),
        "first": first,
        "slices": spread([timed(session.slices, *window) for window in windows]),
        "pan": {},
    }
    for width in PAN_NS:
        start = session.end_ns // 3
        moves = [start + n * width // 10 for n in range(PAN_STEPS)]
        costs = [
            timed(session.slices, position, position + width)
            for position in moves
            if position < session.end_ns
        ]
        results["pan"][f"{width / 1e6:g} ms"] = spread(costs)
    results["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    target = HERE / "results" / "timeline_queries.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    json.dump(results, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
