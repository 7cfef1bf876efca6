"""Memory, descriptors and run size of a job that trains for hours.

    python -m benchmarks.long_run [--minutes 120] [--rate 200] [--sample-s 10]

A small model trains on loaded batches at a steady rate under `stepscope run`. At every sample,
anonymous memory (`RssAnon`) and open descriptors of the training process, the monitor and the watch
process are read from /proc, and the files of the run are added up. After the first fifth of the
time, in which modules are imported and caches fill:

    memory        slope of the memory, MB per hour, by Theil and Sen: the median of the slopes
                  between all pairs of samples, which the peaks of merging do not move
    descriptors   the lowest and the highest count
    run size      bytes per second, of the whole time and of its second half alone

Writes benchmarks/results/long_run.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import msgspec

from stepscope.store import open_run
from tests.support.job_control import Job
from tests.support.waiting import wait_until

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "paced_training.py"
RESULT = HERE / "results" / "long_run.json"
ROLES = {"training process": "job", "monitor": "monitor", "watch process": "watch"}
WARM_UP_SHARE = 0.2


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=200, help="steps per second")
    parser.add_argument("--sample-s", type=float, default=10, help="seconds between samples")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-long-run-") as directory:
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
