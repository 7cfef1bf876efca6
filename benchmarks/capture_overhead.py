"""Overhead of a detailed window while it is open and when it ends, compared with torch.profiler.

Two training loops on the CPU (benchmarks/workloads/recorded_loop.py) run under our adapters: a
convolutional net of ordinary size, and a net of thousands of small operators, where the overhead of
recording is visible. Windows of twenty steps are recorded alternately by torch.profiler and by us,
in one process, with unrecorded steps before each window. This script replaces the monitor, so no
other process runs.

    in-window overhead   a step inside a window over a step just before it, minus 1: lower deciles
                         of the training thread's CPU time, since disturbances only add to it
    longest step at the  longest step around the end of a window, minus a usual step; for
    end                  torch.profiler including `stop` and `export_chrome_trace`
    bytes per step       size of the profiler's JSON, of the same after `gzip -6`, and of the tables
                         of the run

"no recorder" is the same measurement without a window: the noise of the machine. Reported: the
median over rounds with its quartiles. Longest steps are compared by their lower quartiles, for the
same reason. Torch runs with one thread. Writes benchmarks/results/capture_overhead.json.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import quartiles
from stepscope.capture.bootstrap import environment
from stepscope.capture.kineto_daemon import make_directory
from stepscope.monitor.host import node_info
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.planner import (
    Planner,
    WindowSpec,
    WindowStart,
    find_finished_windows,
    find_training_processes,
)
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.spool import SpoolTree
from stepscope.store import RunWriter, create_run

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "recorded_loop.py"
NETS = ("convolutions", "small")
LIMIT_BYTES = 256 * 1024 * 1024
AHEAD_STEPS = 2
NO_RECORDER = "no recorder"
WINDOW_OPTIONS = {
    "light": {"depth": "light"},
    "full": {},
    "full, shapes, stacks": {"options": ("shapes", "stacks")},
    "full, shapes, stacks, memory": {"options": ("shapes", "stacks", "memory")},
}
PEERS = {
    "light": "torch.profiler",
    "full": "torch.profiler",
    "full, shapes, stacks": "torch.profiler, shapes, stacks",
    "full, shapes, stacks, memory": "torch.profiler, shapes, stacks, memory",
}


class MonitorStandIn:
    """Replacement of the monitor: a socket, plans, and the finished files."""

    def __init__(self, work):
        self.spool = work / "spool"
        self.spool.mkdir()
        self.sockets = make_directory()
        self.peer = KinetoPeer(Path(self.sockets))
        self.planner = Planner(self.peer)
        self.trainees = {}
        self.files = {}

    def environment(self):
        return {**os.environ, **environment(str(self.spool), LIMIT_BYTES, self.sockets)}

    def open(self, name, steps):
        find_training_processes(
            SpoolTree(str(self.spool), LIMIT_BYTES), self.trainees, time.monotonic_ns()
        )
        (process,) = self.trainees.values()
        wait(lambda: self.peer.last_poll(process.pid) is not None)
        spec = WindowSpec(reason="requested", step_count=steps, **WINDOW_OPTIONS[name])
        # The workload has completed a step, but the boundary is at the next forward pass.
        first = process.steps + 1 + AHEAD_STEPS
        self.planner.assign(spec, [process], WindowStart(first_step=first))
        if "memory" not in spec.options:
            wait(lambda: not self.peer.has_offer(process.pid))
            poll = self.peer.last_poll(process.pid)
            wait(lambda: self.peer.last_poll(process.pid) != poll)

    def close(self, name):
        """Keep the file of a window until the next one of its kind, and return its size."""
        (process,) = self.trainees.values()
        number = process.plan_count - 1
        wait(lambda: number in dict(find_finished_windows(process.directory)))
        path = dict(find_finished_windows(process.directory))[number]
        copy = self.spool / f"{name}.json"
        path.replace(copy)
        self.files[name] = copy
        return copy.stat().st_size

    def end(self):
        self.peer.close()
        shutil.rmtree(self.sockets)


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "timeout while waiting for the window"
        time.sleep(0.01)


def measure(stand_in, work, net, steps, rounds):
    """Run the workload and load its measurements, one entry per window."""
    out = work / "out.json"
    command = [sys.executable, str(WORKLOAD), str(out), "--net", net]
    job = subprocess.Popen(
        [*command, "--steps", str(steps), "--rounds", str(rounds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=stand_in.environment(),
    )
    for line in job.stdout:
        request = json.loads(line)
        if "open" in request:
            stand_in.open(request["open"], steps)
            reply = ""
        else:
            reply = stand_in.close(request["close"])
            print(f"  {request['close']}", flush=True)
        job.stdin.write(f"{reply}\n")
        job.stdin.flush()
    assert job.wait() == 0
    return json.loads(out.read_text())


def table_bytes(path, work, number):
    """Import a file and measure the bytes of Parquet."""
    run = work / f"run-{number}"
    info = node_info(sample_interval_ns=0, spool="")
    create_run(
        run,
        RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="bench",
            created_ns=0,
            command=[],
            working_directory="",
            stepscope_version="",
        ),
    )
    RunWriter(run, info.node).put_node(info)
    subprocess.run(
        [
            *(sys.executable, "-m", "stepscope.importers", "--run", str(run)),
            *("--node", info.node, "--process", "bench", "--window", "0", str(path)),
        ],
        check=True,
    )
    return sum(path.stat().st_size for path in (run / "tables").rglob("*.parquet"))


def undisturbed_cpu(steps):
    """Return the lower decile of the CPU times."""
    return statistics.quantiles((cpu for _, cpu in steps), n=10)[0]


def summarize(windows, files, work, steps):
    """Compute the reported figures by recorder."""
    results = {}
    for name in (NO_RECORDER, *PEERS, *dict.fromkeys(PEERS.values())):
        recorder_windows = [window for window in windows if window["name"] == name]
        overhead, longest, usual_steps = [], [], []
        for window in recorder_windows:
            usual = statistics.median(wall for wall, _ in window["before"])
            overhead.append(
                undisturbed_cpu(window["during"][1:-1]) / undisturbed_cpu(window["before"]) - 1
            )
            usual_steps.append(usual)
            end_steps = [wall for wall, _ in (*window["during"][-2:], *window["after"])]
            longest.append((max(end_steps) - usual) / 1e6)
        raw = files[name].read_bytes() if name in files else b""
        tables = table_bytes(files[name], work, len(results)) if name in files else 0
        results[name] = {
            "overhead_ratio": overhead,
            "longest_extra_ms": longest,
            "usual_step_ms": statistics.median(usual_steps) / 1e6,
            "json_bytes_per_step": len(raw) / steps,
            "gzip_bytes_per_step": len(gzip.compress(raw, 6)) / steps,
            "parquet_bytes_per_step": tables / steps,
        }
    return results


def report(net, results):
    usual = statistics.median(figures["usual_step_ms"] for figures in results.values())
    print(f"\n{net}: a usual step takes {usual:.1f} ms\n")
    print(
        f"{'':<40}{'in-window overhead':>28}{'longest step at the end':>28}"
        f"{'kB per step: JSON':>18}{'gzip -6':>9}{'tables':>8}"
    )
    for name, figures in results.items():
        low, middle, high = quartiles(figures["overhead_ratio"])
        first, longest, last = quartiles(figures["longest_extra_ms"])
        print(
            f"{name:<40}"
            f"{100 * middle:>+9.2f} % ({100 * low:+.2f} … {100 * high:+.2f})"
            f"{longest:>+10.1f} ms ({first:+.0f} … {last:+.0f})"
            f"{figures['json_bytes_per_step'] / 1e3:>12.1f}"
            f"{figures['gzip_bytes_per_step'] / 1e3:>9.1f}"
            f"{figures['parquet_bytes_per_step'] / 1e3:>8.1f}"
        )
    print()
    for name, peer in PEERS.items():
        own_figures, peer_figures = results[name], results[peer]
        share = statistics.median(own_figures["overhead_ratio"]) / statistics.median(
            peer_figures["overhead_ratio"]
        )
        longest, peer_longest = (
            quartiles(figures["longest_extra_ms"])[0] for figures in (own_figures, peer_figures)
        )
        stall = longest / peer_longest
        own_figures["overhead_of_peer"], own_figures["longest_of_peer"] = share, stall
        print(f"{name}: {share:.2f} of the overhead and {stall:.2f} of the longest step of {peer}")


def measure_loop(net, steps, rounds):
    """Measure one loop and report its figures by recorder."""
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    stand_in = MonitorStandIn(work)
    try:
        windows = measure(stand_in, work, net, steps, rounds)
        files = {**stand_in.files, **{n: work / f"{n}.json" for n in set(PEERS.values())}}
        results = summarize(windows, files, work, steps)
    finally:
        stand_in.end()
        shutil.rmtree(work, ignore_errors=True)
    report(net, results)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    loops = {net: measure_loop(net, arguments.steps, arguments.rounds) for net in NETS}
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "window_steps": arguments.steps,
        "rounds": arguments.rounds,
        "loops": loops,
    }
    out = HERE / "results" / "capture_overhead.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {out}")


if __name__ == "__main__":
    main()
