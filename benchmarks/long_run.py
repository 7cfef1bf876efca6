"""Memory, descriptors and run size of a job that trains for hours, and the cost of reading it.

    python -m benchmarks.long_run [--minutes 120] [--rate 200] [--sample-s 10]
    python -m benchmarks.long_run --steps 100000 1000000 [--base SRC] [--directory DIR]

A small model trains on loaded batches at a steady rate under `stepscope run`. At every sample,
anonymous memory (`RssAnon`) and open descriptors of the training process, the monitor and the watch
process are read from /proc, and the files of the run are added up. After the first fifth of the
time, in which modules are imported and caches fill:

    memory        slope of the memory, MB per hour, by Theil and Sen: the median of the slopes
                  between all pairs of samples, which the peaks of merging do not move
    descriptors   the lowest and the highest count
    run size      bytes per second, of the whole time and of its second half alone

Writes benchmarks/results/long_run.json.

With --steps, runs of so many steps are made of a recording of half a minute, whose second half is
repeated with later times, and commands read them: computed again, and from the results that the
first look has stored. With --base, the sources of another version read them in turn. Measured of
each command are seconds, CPU time and peak memory, the median of --rounds; growth is the exponent
of CPU time and memory between the fewest steps and the most. Writes
benchmarks/results/long_run_reads.json.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np

from stepscope import schema
from stepscope.store import DictColumn, RunReader, RunWriter, create_run, open_run
from tests.support.job_control import Job
from tests.support.waiting import wait_until

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "paced_training.py"
RESULT = HERE / "results" / "long_run.json"
ROLES = {"training process": "job", "monitor": "monitor", "watch process": "watch"}
WARM_UP_SHARE = 0.2
READS_RESULT = HERE / "results" / "long_run_reads.json"
READS = (
    ("diagnose",),
    *(("show", view) for view in ("overview", "steps", "timeline", "input-pipeline", "system")),
)
TIMES = {"spans": ("start_ns", "end_ns"), "stacks": ("t_ns",), "metrics": ("t_ns",)}
"""Tables that are repeated, with their columns of times."""
MEASURED = """
import atexit, os, runpy, sys

def measure():
    status = open("/proc/self/status").read()
    print(*os.times()[:2], status.split("VmHWM:")[1].split()[0], file=sys.stderr)

atexit.register(measure)
runpy.run_module("stepscope", run_name="__main__")
"""
"""Command that prints its CPU times and its peak memory. The kernel counts that of a child from the
memory of this process on."""


class ProcessSample(msgspec.Struct):
    """Memory and descriptors of a process at one time."""

    memory_bytes: int
    descriptors: int


class Sample(msgspec.Struct):
    """State of a job at one time."""

    t_s: float
    run_bytes: int
    processes: dict[str, ProcessSample]


class ProcessResult(msgspec.Struct):
    """Growth of a process after the warm-up."""

    memory_mb: float
    """Median of the anonymous memory."""
    memory_mb_per_hour: float
    descriptors: tuple[int, int]
    """Lowest and highest count."""


class LongRunResult(msgspec.Struct):
    """Growth of a job after the warm-up."""

    minutes: float
    steps: int
    steps_per_s: float
    run_mb: float
    run_bytes_per_s: float
    run_bytes_per_s_second_half: float
    processes: dict[str, ProcessResult]


def sample_process(pid: int) -> ProcessSample:
    """Read the anonymous memory and the open descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    kibibytes = int(status.split("RssAnon:")[1].split()[0])
    return ProcessSample(1024 * kibibytes, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def directory_size(directory: Path) -> int:
    """Add up the sizes of the files below a directory; a file may be merged away meanwhile."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Estimate the slope by Theil and Sen: the median of the slopes between all pairs of points.

    https://en.wikipedia.org/wiki/Theil-Sen_estimator
    """
    return statistics.median(
        (y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2)
    )


def summarize(samples: Sequence[Sample], steps: int, steps_per_s: float) -> LongRunResult:
    """Summarize the samples of a job, in the order of time."""
    warm_up_s = WARM_UP_SHARE * samples[-1].t_s
    steady = [sample for sample in samples if sample.t_s >= warm_up_s]
    sizes = [(sample.t_s, float(sample.run_bytes)) for sample in steady]
    return LongRunResult(
        minutes=samples[-1].t_s / 60,
        steps=steps,
        steps_per_s=steps_per_s,
        run_mb=samples[-1].run_bytes / 1e6,
        run_bytes_per_s=slope(sizes),
        run_bytes_per_s_second_half=slope(sizes[len(sizes) // 2 :]),
        processes={
            name: summarize_process([(s.t_s, s.processes[name]) for s in steady]) for name in ROLES
        },
    )


def summarize_process(samples: Sequence[tuple[float, ProcessSample]]) -> ProcessResult:
    """Summarize the samples of one process, each with its time."""
    counts = [sample.descriptors for _, sample in samples]
    return ProcessResult(
        memory_mb=statistics.median(sample.memory_bytes for _, sample in samples) / 1e6,
        memory_mb_per_hour=3600 * slope([(t_s, s.memory_bytes) for t_s, s in samples]) / 1e6,
        descriptors=(min(counts), max(counts)),
    )


def record(directory: Path, *, seconds: float, rate: float, sample_s: float) -> LongRunResult:
    """Record a job in an empty directory and sample its processes.

    Raises:
        FileNotFoundError: one of its processes has ended.
    """
    end = directory / "end"
    command = [sys.executable, str(WORKLOAD), str(end), "--rate", str(rate)]
    job = Job(directory / "run", directory / "spool", *command, options=("--quiet",))
    try:
        job.wait_monitor()  # before it, the launcher has other children
        pids = {name: job.wait_child(role) for name, role in ROLES.items()}
        wait_until(lambda: _has_steps(job.run), timeout_s=120, waiting_for="steps in the run")
        samples = list(_samples(job.run, pids, seconds, sample_s))
        end.touch()
        job.wait()
    finally:
        job.end()
    steps = open_run(job.run).table("spans", ["start_ns"], condition="kind = 'optimizer'")
    start_ns = steps["start_ns"]
    duration_s = int(start_ns.max() - start_ns.min()) / 1e9
    return summarize(samples, len(start_ns), (len(start_ns) - 1) / duration_s)


def _has_steps(run: Path) -> bool:
    return any((run / "tables" / "spans").glob("*/*.parquet"))


def _samples(run: Path, pids: dict[str, int], seconds: float, sample_s: float) -> Iterator[Sample]:
    start_s, pause = time.monotonic(), threading.Event()
    while (t_s := time.monotonic() - start_s) <= seconds:
        processes = {name: sample_process(pid) for name, pid in pids.items()}
        yield Sample(t_s, directory_size(run), processes)
        pause.wait(sample_s)


class ReadCost(msgspec.Struct, kw_only=True):
    """Cost of a command."""

    steps: int
    command: str
    source: str
    """`computed`, `stored`, or `base`: computed by the other version."""
    seconds: float
    cpu_s: float
    memory_mb: float


class ReadsResult(msgspec.Struct, kw_only=True):
    """Costs of reading long runs."""

    costs: list[ReadCost]
    cpu_exponents: dict[str, float]
    memory_exponents: dict[str, float]


def stretch(source: Path, target: Path, step_count: int) -> None:
    """Make a run of at least so many steps: the second half of a recording again and again."""
    reader = open_run(source)
    ends = reader.table("spans", ["end_ns"], condition="kind = 'optimizer'")["end_ns"]
    ends = np.sort(np.ma.compressed(ends))
    repeated_count = len(ends) // 2
    first, last = int(ends[-1 - repeated_count]), int(ends[-1])
    count = 1 + max(0, math.ceil((step_count - len(ends)) / repeated_count))
    later_ns = (count - 1) * (last - first)
    create_run(target, reader.info)
    ((node, info),) = reader.nodes().items()
    status = reader.statuses()[node]
    with RunWriter(target, node) as writer:
        writer.put_node(info)
        ends_ns = {
            name: getattr(status, name) + later_ns
            for name in ("heartbeat_ns", "ended_ns", "elapsed_ns")
        }
        writer.put_status(msgspec.structs.replace(status, **ends_ns))
        for process in reader.processes():
            end_ns = None if process.ended_ns is None else process.ended_ns + later_ns
            writer.put_process(msgspec.structs.replace(process, ended_ns=end_ns))
        for name in schema.TABLES:
            if reader.has(name):
                _repeat(reader, writer, name, (first, last), count)


def _repeat(
    reader: RunReader, writer: RunWriter, name: str, period: tuple[int, int], count: int
) -> None:
    """Write a table whose rows of a period are repeated, each time a period later."""
    strings = [column.name for column in schema.TABLES[name].columns if column.type == "VARCHAR"]
    rows = reader.table(name, encoded=strings)
    if name not in TIMES:
        writer.append(name, rows)
        return
    start, (first, last) = rows[TIMES[name][0]], period

    def write(selected: np.ndarray, number: int) -> None:
        part = {
            column: DictColumn(values.codes[selected], values.values)
            if isinstance(values, DictColumn)
            else values[selected]
            for column, values in rows.items()
        }
        for column in TIMES[name]:
            part[column] = part[column] + number * (last - first)
        writer.append(name, part | {"seq": part["seq"] + number * len(start)})

    write(np.flatnonzero(start <= first), 0)
    for number in range(count):
        write(np.flatnonzero((start > first) & (start <= last)), number)
    write(np.flatnonzero(start > last), count - 1)
    writer.compact(name)


def measure_reads(
    directory: Path, step_counts: Sequence[int], *, rate: float, rounds: int, base: Path | None
) -> ReadsResult:
    """Measure commands on runs of these numbers of steps, made in an empty directory."""
    recording = directory / "recording"
    recording.mkdir()
    record(recording, seconds=30, rate=rate, sample_s=1)
    costs = []
    for step_count in step_counts:
        run = directory / f"{step_count}-steps"
        stretch(recording / "run", run, step_count)
        for command, *view in READS:
            sources = ["computed", *(["base"] if base else []), "stored"]
            arguments = [command, str(run), *view]
            _measure_read(arguments, "stored", base)  # stores the result
            table = [[_measure_read(arguments, s, base) for s in sources] for _ in range(rounds)]
            for source, measured in zip(sources, zip(*table, strict=True), strict=True):
                seconds, cpu_s, memory_mb = map(statistics.median, zip(*measured, strict=True))
                cost = ReadCost(
                    steps=step_count,
                    command=" ".join((command, *view)),
                    source=source,
                    seconds=seconds,
                    cpu_s=cpu_s,
                    memory_mb=memory_mb,
                )
                print(cost, flush=True)
                costs.append(cost)
        shutil.rmtree(run)
    return ReadsResult(
        costs=costs,
        cpu_exponents=_estimate_exponents(costs, "cpu_s"),
        memory_exponents=_estimate_exponents(costs, "memory_mb"),
    )


def _measure_read(
    arguments: Sequence[str], source: str, base: Path | None
) -> tuple[float, float, float]:
    """Measure a command: seconds, CPU seconds and peak memory in megabytes."""
    environment = dict(os.environ)
    if source != "stored":
        environment["STEPSCOPE_STORED_RESULTS"] = "0"
    if source == "base":
        environment["PYTHONPATH"] = str(base)
    command = [sys.executable, "-c", MEASURED, *arguments, "--json"]
    start_s = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - start_s
    user_s, system_s, *_, kibibytes = done.stderr.splitlines()[-1].split()
    return seconds, float(user_s) + float(system_s), int(kibibytes) * 1024 / 1e6


def _estimate_exponents(costs: Sequence[ReadCost], figure: str) -> dict[str, float]:
    """Estimate the exponents of growth between the fewest steps and the most."""
    counts = sorted({cost.steps for cost in costs})
    if len(counts) < 2:
        return {}
    values = {(c.command, c.source, c.steps): float(getattr(c, figure)) for c in costs}
    return {
        f"{command}, {source}": math.log(values[command, source, counts[-1]] / value)
        / math.log(counts[-1] / counts[0])
        for (command, source, steps), value in values.items()
        if steps == counts[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=200, help="steps per second")
    parser.add_argument("--sample-s", type=float, default=10, help="seconds between samples")
    parser.add_argument("--steps", type=int, nargs="+", help="read runs of so many steps")
    parser.add_argument("--rounds", type=int, default=3, help="of those commands")
    parser.add_argument("--base", type=Path, help="sources of another version")
    parser.add_argument("--directory", type=Path, help="for the runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="stepscope-long-run-", dir=arguments.directory
    ) as directory:
        if arguments.steps:
            reads = measure_reads(
                Path(directory),
                arguments.steps,
                rate=arguments.rate,
                rounds=arguments.rounds,
                base=arguments.base,
            )
            READS_RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(reads)) + b"\n")
            return
        result = record(
            Path(directory),
            seconds=60 * arguments.minutes,
            rate=arguments.rate,
            sample_s=arguments.sample_s,
        )
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(RESULT.read_text(), end="")


if __name__ == "__main__":
    main()
