"""What a detailed window costs while it is open and when it ends, beside torch.profiler.

Two training loops on the CPU (benchmarks/workloads/recorded_loop.py) run under our adapters: a
convolutional net, as one trains it, and a net of thousands of small operators, in which recording
shows. Their steps are recorded in windows of twenty, by torch.profiler and by us in turn, in one
process, with unrecorded steps before each. This script stands in for the monitor, so nothing else
runs.

    in-window overhead   a step inside a window over a step just before it, less 1: lower deciles of
                         the training thread's CPU time, since what disturbs a step only adds to it
    longest step at the  the longest of the steps around the end of a window, less a usual step;
    end                  for torch.profiler with `stop` and `export_chrome_trace`
    bytes a step         of the profiler's JSON, of that through `gzip -6`, and of the run's tables

"no recorder" is the same with nothing in the place of a window: what the machine itself adds.
Reported: the median over rounds with its quartiles. Longest steps are compared by their lower
quartiles, for the same reason. Torch is kept to one thread. Writes
benchmarks/results/capture_overhead.json.
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

from always_on_cost import quartiles

from stepscope.capture.bootstrap import environment
from stepscope.capture.kineto_daemon import make_directory
from stepscope.monitor.host import node_info
from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.planner import Planner, WindowSpec, WindowStart
from stepscope.monitor.windows.training_processes import (
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
NOTHING = "no recorder"
WISHES = {
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


class Stand:
    """The monitor's part: a socket, plans, and the finished files."""

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
        (trainee,) = self.trainees.values()
        wait(lambda: self.peer.last_poll(trainee.pid) is not None)
        wish = WindowSpec(reason="requested", step_count=steps, **WISHES[name])
        # A step in the workload has ended, but the boundary comes with the next forward pass.
        first = trainee.steps + 1 + AHEAD_STEPS
        self.planner.assign(wish, [trainee], WindowStart(first_step=first))
        if "memory" not in wish.options:
            wait(lambda: not self.peer.has_offer(trainee.pid))
            asked = self.peer.last_poll(trainee.pid)
            wait(lambda: self.peer.last_poll(trainee.pid) != asked)

    def close(self, name):
        """Size of the window's file, which is kept until the next of its kind."""
        (trainee,) = self.trainees.values()
        number = trainee.plan_count - 1
        wait(lambda: number in dict(find_finished_windows(trainee.directory)))
        path = dict(find_finished_windows(trainee.directory))[number]
        kept = self.spool / f"{name}.json"
        path.replace(kept)
        self.files[name] = kept
        return kept.stat().st_size

    def end(self):
        self.peer.close()
        shutil.rmtree(self.sockets)


def wait(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the window is late"
        time.sleep(0.01)


def measure(stand, work, net, steps, rounds):
    """What the workload measured, one entry per window."""
    out = work / "out.json"
    command = [sys.executable, str(WORKLOAD), str(out), "--net", net]
    job = subprocess.Popen(
        [*command, "--steps", str(steps), "--rounds", str(rounds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=stand.environment(),
    )
    for line in job.stdout:
        asked = json.loads(line)
        if "open" in asked:
            stand.open(asked["open"], steps)
            answer = ""
        else:
            answer = stand.close(asked["close"])
            print(f"  {asked['close']}", flush=True)
        job.stdin.write(f"{answer}\n")
        job.stdin.flush()
    assert job.wait() == 0
    return json.loads(out.read_text())


def table_bytes(path, work, number):
    """Bytes of Parquet that a file becomes."""
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
    return sum(each.stat().st_size for each in (run / "tables").rglob("*.parquet"))


def undisturbed_cpu(steps):
    """Lower decile of the CPU times."""
    return statistics.quantiles((cpu for _, cpu in steps), n=10)[0]


def summarise(windows, files, work, steps):
    """Everything that is reported, by name."""
    found = {}
    for name in (NOTHING, *PEERS, *dict.fromkeys(PEERS.values())):
        own = [each for each in windows if each["name"] == name]
        overhead, longest, usual_steps = [], [], []
        for each in own:
            usual = statistics.median(wall for wall, _ in each["before"])
            overhead.append(
                undisturbed_cpu(each["during"][1:-1]) / undisturbed_cpu(each["before"]) - 1
            )
            usual_steps.append(usual)
            around = [wall for wall, _ in (*each["during"][-2:], *each["after"])]
            longest.append((max(around) - usual) / 1e6)
        raw = files[name].read_bytes() if name in files else b""
        tables = table_bytes(files[name], work, len(found)) if name in files else 0
        found[name] = {
            "overhead_ratio": overhead,
            "longest_extra_ms": longest,
            "usual_step_ms": statistics.median(usual_steps) / 1e6,
            "json_bytes_per_step": len(raw) / steps,
            "gzip_bytes_per_step": len(gzip.compress(raw, 6)) / steps,
            "parquet_bytes_per_step": tables / steps,
        }
    return found


def report(net, found):
    usual = statistics.median(each["usual_step_ms"] for each in found.values())
    print(f"\n{net}: a usual step takes {usual:.1f} ms\n")
    print(
        f"{'':<40}{'in-window overhead':>28}{'longest step at the end':>28}"
        f"{'KB a step: JSON':>17}{'gzip -6':>9}{'tables':>8}"
    )
    for name, each in found.items():
        low, middle, high = quartiles(each["overhead_ratio"])
        first, longest, last = quartiles(each["longest_extra_ms"])
        print(
            f"{name:<40}"
            f"{100 * middle:>+9.2f} % ({100 * low:+.2f} … {100 * high:+.2f})"
            f"{longest:>+10.1f} ms ({first:+.0f} … {last:+.0f})"
            f"{each['json_bytes_per_step'] / 1e3:>12.1f}"
            f"{each['gzip_bytes_per_step'] / 1e3:>9.1f}"
            f"{each['parquet_bytes_per_step'] / 1e3:>8.1f}"
        )
    print()
    for name, peer in PEERS.items():
        ours, theirs = found[name], found[peer]
        share = statistics.median(ours["overhead_ratio"]) / statistics.median(
            theirs["overhead_ratio"]
        )
        stall = quartiles(ours["longest_extra_ms"])[0] / quartiles(theirs["longest_extra_ms"])[0]
        ours["overhead_of_peer"], ours["longest_of_peer"] = share, stall
        print(f"{name}: {share:.2f} of the overhead and {stall:.2f} of the longest step of {peer}")


def recorded(net, steps, rounds):
    """All that is reported of one loop, by recorder."""
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    stand = Stand(work)
    try:
        windows = measure(stand, work, net, steps, rounds)
        files = {**stand.files, **{n: work / f"{n}.json" for n in set(PEERS.values())}}
        found = summarise(windows, files, work, steps)
    finally:
        stand.end()
        shutil.rmtree(work, ignore_errors=True)
    report(net, found)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    loops = {net: recorded(net, arguments.steps, arguments.rounds) for net in NETS}
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
