"""Always-on overhead of short steps, by pairs of epochs with and without stepscope in one process.

A multilayer perceptron with a DataLoader in the training process: steps of about 1 and 5 ms, 5 ms
under Lightning if it is installed, and 1 ms with anomaly detection, each on two cores and on one
that the job shares with its monitor. Torch runs with one thread. Without stepscope means: no
function is patched, no sampler runs, the monitor is stopped (workloads/short_steps.py).

Reported are the differences of the median and the mean step of an epoch between the two epochs of a
pair: the median over pairs, with a bootstrap interval of 95%. Thread CPU time is that of the
training thread; wall time contains the monitor and whatever else the machine does. Writes
benchmarks/results/short_step_cost.json.
"""

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.always_on_cost import find_workload, run_workload
from benchmarks.measuring import OURS

HERE = Path(__file__).resolve().parent
FIVE_MS = ("--width", "512", "--layers", "4", "--batch", "96")
JOBS = {
    "plain, 1 ms": ("--job", "plain"),
    "plain, 5 ms": ("--job", "plain", *FIVE_MS),
    "anomaly detection": ("--job", "anomaly"),
    "Lightning, 5 ms": ("--job", "lightning", *FIVE_MS),
}
MEASURES = ("wall_ns", "thread_cpu_ns")
STATISTICS = {"median": np.median, "mean": np.mean}
RESAMPLES = 4000


def measure(options, cores, pairs, build=OURS):
    """Run a job on some cores; return its step times by pair, step and measure, off and on."""
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    try:
        out = work / "out.json"
        command = ["taskset", "-c", ",".join(map(str, cores)), *build.record(work / "run")]
        command += [sys.executable, str(find_workload("short_steps", build)), str(out)]
        steps = run_workload([*command, *options, "--pairs", str(pairs)], out, build)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return np.array(steps["off"], dtype=float), np.array(steps["on"], dtype=float)


def summarize(off, on):
    """Compute median differences over pairs with their intervals, by statistic and measure."""
    generator = np.random.default_rng(0)
    results = {}
    for name, reduce in STATISTICS.items():
        for column, measure_name in enumerate(MEASURES):
            without, with_it = reduce(off[..., column], axis=1), reduce(on[..., column], axis=1)
            extra = with_it - without
            rows = generator.integers(0, len(extra), (RESAMPLES, len(extra)))
            low, high = np.quantile(np.median(extra[rows], axis=1), (0.025, 0.975))
            base = float(np.median(without))
            results[f"{name}_{measure_name}"] = {
                "without": base,
                "extra": float(np.median(extra)),
                "interval": [float(low), float(high)],
                "ratio": float(np.median(extra)) / base,
            }
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--remark", default="", help="stored with the results")
    arguments = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    jobs = dict(JOBS)
    if importlib.util.find_spec("lightning") is None:
        del jobs["Lightning, 5 ms"]
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "load_before": os.getloadavg()[0],
        "remark": arguments.remark,
        "pairs": arguments.pairs,
        "jobs": {},
    }
    print(f"{'':<32}{'step, us':>10}{'extra thread CPU, us':>28}{'extra wall, us':>26}")
    for cores in (available[:2], available[:1]):
        for name, options in jobs.items():
            figures = summarize(*measure(options, cores, arguments.pairs))
            label = f"{name}, {len(cores)} of {os.cpu_count()} cores"
            result["jobs"][label] = figures
            for statistic in STATISTICS:
                print(f"{label + ', ' + statistic:<40}", end="")
                print(f"{figures[statistic + '_wall_ns']['without'] / 1e3:>8.0f}", end="")
                for measure_name in reversed(MEASURES):
                    row = figures[f"{statistic}_{measure_name}"]
                    low, high = (bound / 1e3 for bound in row["interval"])
                    extra = f"{row['extra'] / 1e3:+.0f} ({low:+.0f} … {high:+.0f})"
                    print(f"{extra:>24}", end="")
                print(flush=True)
    result["load_after"] = os.getloadavg()[0]
    out = HERE / "results" / "short_step_cost.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {out}")


if __name__ == "__main__":
    main()
