"""What evaluating all rules costs on a long run of several nodes, and on one that is growing.

    check      `stepscope rules check RUN`, a fresh process each time
    sum        DuckDB in a fresh process, adding up the values of all samples of the same run
    scan       one scan after another of a run that grows by a minute at a time, in one process;
               beside each, DuckDB adds up the values of the samples that are new

The run is generated (workloads/cluster_run.py) through the store's own writer. Every round runs
check and sum once, in turn; ratios are taken within a round or scan. Reported are the least and
the quartiles of wall time and of CPU time, which says more on a machine that does other work, and
the largest resident size. The cost of scan n against n is the ratio of the median of the last
tenth of the scans to that of the first, once all nodes are there and all rules have begun to
decide; the same of the sums beside them says what the machine had to do with it.

    python benchmarks/rule_scan.py [--hours 24] [--nodes 8] [--rounds 5] [--scans 120] [--run DIR]

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
from workloads.cluster_run import Node, create, write_run

from stepscope.rule_feed.check import choose_rules
from stepscope.rule_feed.feed import RunFeed
from stepscope.rules import Evaluation
from stepscope.schema import JobState
from stepscope.store import RunWriter, available_cores, open_run

HERE = Path(__file__).resolve().parent
STEPSCOPE = str(Path(sys.executable).parent / "stepscope")
FIRED = 3
SCAN_S = 60
FLUSH_S = 20
START = 15
"""Scans until every node is there and no rule is waiting for more samples."""
SUM = "SELECT sum(value) FROM read_parquet({}, hive_partitioning = false)"
SUM_ALL = f"""
import duckdb, glob, sys
files = glob.glob(sys.argv[1] + "/tables/metrics/*/*.parquet")
print(duckdb.connect().execute("{SUM}".format(files)).fetchall())
"""


def cost(command, expected=(0,)):
    """Wall and CPU seconds and largest resident size of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in expected:
        raise SystemExit(f"{command} failed with {process.returncode}")
    return {
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"least": min(values), "low": low, "median": middle, "high": high}


def summary(costs):
    return {name: spread([each[name] for each in costs]) for name in costs[0]}


def ratios(costs, bases, name):
    return spread([each[name] / base[name] for each, base in zip(costs, bases, strict=True)])


def check_whole(run, rounds):
    """The whole run, over and over."""
    checks, sums = [], []
    for number in range(rounds):
        checks.append(cost([STEPSCOPE, "rules", "check", str(run), "--json"], (0, FIRED)))
        sums.append(cost([sys.executable, "-c", SUM_ALL, str(run)]))
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
    """Scan after scan of a run that grows."""
    create(location)
    # Long enough for everything that a day has to happen within the scans.
    seconds = scans * SCAN_S
    members = [Node(location, number, nodes, seconds) for number in range(nodes)]
    writers = {node.name: RunWriter(location, node.name) for node in members}
    reader = open_run(location)
    feed, evaluation = RunFeed(reader), Evaluation(choose_rules())
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
    """Median of the last tenth over that of the first, the start left out."""
    tenth = max(1, len(costs) // 10)
    first, last = costs[START : START + tenth], costs[-tenth:]
    return {
        name: statistics.median(each[name] for each in last)
        / statistics.median(each[name] for each in first)
        for name in ("wall_s", "cpu_s")
    }


def grow(members, writers, end):
    """Write the minute that ends at some second, as monitors do."""
    rows = {"metrics": 0, "spans": 0}
    for node in members:
        node.describe(writers[node.name], JobState.IN_PROGRESS, end)
        for begin in range(max(end - SCAN_S, node.joins_s), end, FLUSH_S):
            for table, columns in node.rows(begin, min(begin + FLUSH_S, end)):
                rows[table] += writers[node.name].append(table, columns)
    return rows


def scan(feed, evaluation):
    for signals in feed.ranges(final=False):
        evaluation.feed(signals)
    evaluation.findings("running")


def timed(action):
    begin, used = time.perf_counter(), time.process_time()
    action()
    return {"wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - used}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scans", type=int, default=120)
    parser.add_argument("--run", type=Path, help="keep the run here, or take the one that is here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        run = given.run or Path(directory) / "whole"
        if not run.exists():
            write_run(run, hours=given.hours, nodes=given.nodes)
        reader = open_run(run)
        rows = {table: reader.row_count(table) for table in ("metrics", "spans")}
        results = {
            "hours": given.hours,
            "nodes": given.nodes,
            "cores": available_cores(),
            "rows": rows,
            "bytes_per_row": bytes_per_row(run, rows),
            "whole": check_whole(run, given.rounds),
            "growing": scan_growing(Path(directory) / "growing", given.nodes, given.scans),
        }
    place = HERE / "results" / "rule_scan.json"
    place.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
