"""Exits of processes of a job: exit status, output and checkpoint with and without stepscope.

    python -m benchmarks.versions.exits [--interpreter PYTHON] [--exits N] [--minutes N]

Several jobs of `exiting_job.py` run at once, which keeps the processors busy: an exit costs a third
of a second of them. Another process keeps memory and disk busy. Processes of a job end in each of
its ways; a third of them without windows, a third with a window that has ended and a third with one
that is open at the exit. Some are two ranks under torchrun. Every exit is compared with one of the
same way without stepscope. Counts are added to benchmarks/results/exits.json by release.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

JOB = Path(__file__).with_name("exiting_job.py")
RESULTS = Path(__file__).parents[1] / "results" / "exits.json"
WAYS = ("plain", "status", "exception", "signal", "thread", "fork", "workers")
WINDOWS = {
    "no window": ("--window", "off"),
    "window": ("--start-step", "3", "--num-steps", "3"),
    "open window": ("--start-step", "6", "--num-steps", "1000"),
}
ROUNDS = 10
"""Processes of each way in one job."""
JOBS = 4
"""Jobs at the same time."""
LIMIT_S = 3600
BUSY = """
import os
os.nice(10)
while True:
    with open("busy", "wb") as file:
        file.write(os.urandom(1 << 16) * 512)
        file.flush()
        os.fsync(file.fileno())
    bytearray(1 << 30)
    sum(range(3_000_000))
"""


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keep the disk, a gigabyte of memory and what the jobs leave of a core busy."""
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=directory)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def run_job(python: Path, directory: Path, options: tuple[str, ...] | None, ranks: int) -> None:
    """Run a job, under stepscope if there are options of it.

    Raises:
        RuntimeError: the process that forks the others, or torchrun, failed.
    """
    out = directory / "processes"
    out.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launcher = [f"--nproc_per_node={ranks}", f"--master_port={port}"] if ranks > 1 else []
    job = [str(python), *(["-m", "torch.distributed.run", *launcher] if launcher else [])]
    job += [str(JOB), str(out), str(ROUNDS), *(WAYS if ranks == 1 else ("plain",))]
    recorder = [
        sys.executable,
        "-m",
        "stepscope",
        "run",
        "--quiet",
        "--out",
        str(directory / "run"),
    ]
    command = [*recorder, *options, "--", *job] if options is not None else job
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=directory
    )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-2000:]}")


def read_exits(directory: Path) -> dict[str, tuple[str, ...]]:
    """Read how each process of a job ended, by its name."""
    exits = {}
    for process in sorted((directory / "processes").iterdir()):
        texts = []
        for name in ("status", "out", "err", "model.pt"):
            path = process / name
            content = path.read_bytes() if path.exists() else b"missing"
            text = content.decode(errors="replace").replace(str(directory), "")
            texts.append(hashlib.sha256(content).hexdigest() if name == "model.pt" else text)
        exits[process.name] = tuple(texts)
    return exits


def store(release: str, counts: Counter[str], changed: list[str]) -> str:
    """Add exits of a release to those before, and return their sums."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    before = results.get(release, {"exits": {}, "changed": []})
    results[release] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "exits": dict(Counter(before["exits"]) + counts),
        "changed": before["changed"] + changed,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    entry = results[release]
    return f"{sum(entry['exits'].values())} exits, {len(entry['changed'])} changed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions.exits")
    parser.add_argument("--interpreter", type=Path, default=Path(sys.executable))
    parser.add_argument("--exits", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=40)
    options = parser.parse_args()
    code = "import torch; print(torch.__version__)"
    python = options.interpreter.absolute()
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    release = shown.stdout.strip().partition("+")[0]
    end_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top, busy_machine():
        expected: dict[str, tuple[str, ...]] = {}
        for ranks in (1, 2):
            run_job(python, Path(top) / f"alone {ranks}", None, ranks)
            expected |= read_exits(Path(top) / f"alone {ranks}")
        jobs_of_window = -(-options.exits // (len(WINDOWS) * len(WAYS) * ROUNDS))
        jobs = [(window, number) for number in range(jobs_of_window + 1) for window in WINDOWS]

        def run(window: str, number: int) -> dict[str, tuple[str, ...]]:
            """Read the exits of a job, of two ranks if it is the first; none after the time."""
            if time.monotonic() > end_s:
                return {}
            directory = Path(top) / f"{window} {number}"
            run_job(python, directory, WINDOWS[window], 1 if number else 2)
            return read_exits(directory)

        with ThreadPoolExecutor(JOBS) as pool:
            ended = pool.map(run, *zip(*jobs, strict=True))
            for (window, number), exits in zip(jobs, ended, strict=True):
                changed = [
                    f"{window}: {name}: {answer} instead of {expected[name]}"
                    for name, answer in exits.items()
                    if answer != expected[name]
                ]
                ways = window if number else f"{window}, two ranks"
                print(release, store(release, Counter({ways: len(exits)}), changed), flush=True)


if __name__ == "__main__":
    main()
