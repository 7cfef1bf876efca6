"""Cost of evaluating all rules on a long run of several nodes, and on a growing run.

    check      `stepscope rules check RUN` in a new process
    sum        DuckDB in a new process, summing the values of all samples of the same run
    scan       consecutive scans of a run that grows by a minute at a time, in one process; next to
               each, DuckDB sums the values of the new samples

The run is generated (workloads/cluster_run.py) with the store's writer. Every round runs check and
sum once; ratios are computed within a round or scan. Reported: the minimum and the quartiles of
wall time and of CPU time, which is more reliable on a busy machine, and the maximum resident size.
The growth of the cost of a scan is the ratio of the median of the last tenth of the scans to that
of the first tenth, after all nodes have joined and all rules have enough samples; the same ratio
for the sums shows the influence of the machine.

    python -m benchmarks.rule_scan [--hours 24] [--nodes 8] [--rounds 5] [--scans 120] [--run DIR]

Writes benchmarks/results/rule_scan.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from benchmarks.workloads.cluster_run import Node, create, write_run
from stepscope.cores import available_cores
from stepscope.rule_feed.check import choose_rules
from stepscope.rule_feed.feed import RuleFeed
from stepscope.rules import Evaluation
from stepscope.schema import JobState
from stepscope.store import RunWriter, open_run

HERE = Path(__file__).resolve().parent
STEPSCOPE = str(Path(sys.executable).parent / "stepscope")
FIRED = 3
SCAN_S = 60
FLUSH_S = 20
WARM_UP_SCANS = 15
"""Scans until every node has joined and no rule is waiting for more samples."""
SUM = "SELECT sum(value) FROM read_parquet({}, hive_partitioning = false)"
SUM_ALL = f"""
import duckdb, glob, sys
files = glob.glob(sys.argv[1] + "/tables/metrics/*/*.parquet")
print(duckdb.connect().execute("{SUM}".format(files)).fetchall())
"""


def measure_process(command, expected=(0,)):
    """Measure wall and CPU seconds and the maximum resident size of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in expected:
        raise SystemExit(f"{command} failed with {process.returncode}")
    return {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"least": min(values), "low": low, "median": middle, "high": high}


def summary(costs):
    return {name: spread([cost[name] for cost in costs]) for name in costs[0]}


def ratios(costs, bases, name):
    return spread([cost[name] / base[name] for cost, base in zip(costs, bases, strict=True)])


def measure_complete_run(run, rounds):
    """Measure checks of the complete run."""
    checks, sums = [], []
    for number in range(rounds):
        checks.append(
            measure_process([STEPSCOPE, "rules", "check", str(run), "--json"], (0, FIRED))
        )
        sums.append(measure_process([sys.executable, "-c", SUM_ALL, str(run)]))
        print(f"round {number}: {checks[-1]}, sum {sums[-1]}", file=sys.stderr)
    return {
        "check": summary(checks),
        "sum": summary(sums),
        "check / sum": {name: ratios(checks, sums, name) for name in ("wall_s", "cpu_s")},
    }


def bytes_per_row(run, rows):
    sizes = {
        table: sum(path.stat().st_size for path in (run / "tables" / table).rglob("*.parquet"))
        for table in rows
    }
    return {table: sizes[table] / count for table, count in rows.items()}


def scan_growing(location, nodes, scans):
    """Measure consecutive scans of a growing run."""
    create(location)
    # The duration of the run is that of the scans, so that all its events happen within them.
    seconds = scans * SCAN_S
    members = [Node(location, number, nodes, seconds) for number in range(nodes)]
    writers = {node.name: RunWriter(location, node.name) for node in members}
    reader = open_run(location)
    feed, evaluation = RuleFeed(reader), Evaluation(choose_rules())
    costs, sums, new_rows = [], [], []
    for end in range(SCAN_S, seconds + 1, SCAN_S):
        rows = grow(members, writers, end)
        new_rows.append(sum(rows.values()))
        files = [str(path) for path in (location / "tables/metrics").rglob("*.parquet")]
        fresh = sorted(files, key=os.path.getmtime)[-len(members) * SCAN_S // FLUSH_S :]
        sums.append(timed(lambda fresh=fresh: duckdb.execute(SUM.format(fresh)).fetchall()))
        for writer in writers.values():
            for table in rows:
                writer.compact(table)
        costs.append(timed(lambda: scan(feed, evaluation)))
    return {
        "scans": scans,
        "rows_per_scan": spread(new_rows),
        "scan": summary(costs),
        "sum": summary(sums),
        "scan / sum": {name: ratios(costs, sums, name) for name in ("wall_s", "cpu_s")},
        "growth": {"scan": growth(costs), "sum": growth(sums)},
    }


def growth(costs):
    """Compute the ratio of the median of the last tenth to that of the first, without warm-up."""
    tenth = max(1, len(costs) // 10)
    first, last = costs[WARM_UP_SCANS : WARM_UP_SCANS + tenth], costs[-tenth:]
    return {
        name: statistics.median(cost[name] for cost in last)
        / statistics.median(cost[name] for cost in first)
        for name in ("wall_s", "cpu_s")
    }


def grow(members, writers, end):
    """Write the minute that ends at second `end`, in flushes as monitors do."""
    rows = {"metrics": 0, "spans": 0}
    for node in members:
        node.describe(writers[node.name], JobState.IN_PROGRESS, end)
        for start in range(max(end - SCAN_S, node.joins_s), end, FLUSH_S):
            for table, columns in node.rows(start, min(start + FLUSH_S, end)):
                rows[table] += writers[node.name].append(table, columns)
    return rows


def scan(feed, evaluation):
    for signals in feed.ranges(final=False):
        evaluation.feed(signals)
    evaluation.findings("running")


def timed(action):
    start, start_cpu = time.perf_counter(), time.process_time()
    action()
    return {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - start_cpu}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scans", type=int, default=120)
    parser.add_argument("--run", type=Path, help="keep the run here, or take the one that is here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        run = arguments.run or Path(directory) / "whole"
        if not run.exists():
            write_run(run, hours=arguments.hours, nodes=arguments.nodes)
        reader = open_run(run)
        rows = {table: reader.row_count(table) for table in ("metrics", "spans")}
        results = {
            "hours": arguments.hours,
            "nodes": arguments.nodes,
            "cores": available_cores(),
            "rows": rows,
            "bytes_per_row": bytes_per_row(run, rows),
            "whole": measure_complete_run(run, arguments.rounds),
            "growing": scan_growing(Path(directory) / "growing", arguments.nodes, arguments.scans),
        }
    target = HERE / "results" / "rule_scan.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
