"""Subjects of the rows: functions that make, from the inputs, a measurement for each name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import always_on_cost, import_trace, many_ranks, short_step_cost
from benchmarks.always_on_cost import find_workload, run_workload
from benchmarks.laboratory.bench import Bench
from benchmarks.laboratory.rounds import Subject
from benchmarks.measuring import OURS, Build, Cost, measure, quartiles, sum_memory

Subjects = Callable[[Bench], dict[str, Subject]]
Reading = Callable[[Cost], float]
LIMIT_S = 600.0
LIBRARIES = "numpy and duckdb alone"
FIRST_LINE = "import time; print(time.monotonic_ns(), flush=True); time.sleep(0.5)"
"""The job goes on for a while, because py-spy fails on one that has ended before it attaches."""
PACED = (
    "import os, time, stepscope\nprint(os.getpid(), flush=True)\n"
    "while True: time.sleep(0.05); stepscope.step()\n"
)
BUSY = "import time\nend = time.process_time() + 4\nwhile time.process_time() < end: pass\n"
JOBS_AT_ONCE = 10
SETTLE_S = 10
PAIRS = 20
"""Pairs of epochs in a job of short steps."""


def seconds(cost: Cost) -> float:
    return cost.seconds


def cpu_seconds(cost: Cost) -> float:
    return cost.cpu_s


def megabytes(cost: Cost) -> float:
    return cost.memory_mb


def cost_of(
    read: Reading, command: Sequence[str], *, build: Build = OURS, fresh: Path | None = None
) -> Subject:
    """Make a subject that runs a command, for which a run directory is removed before."""

    def run() -> float:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        samples_memory = read is megabytes
        environment = build.environment
        return read(
            measure(
                command, environment=environment, samples_memory=samples_memory, limit_s=LIMIT_S
            )
        )

    return run


def python_code(code: str, *arguments: object, python: str = sys.executable) -> list[str]:
    """Return the command line of a few lines of Python."""
    return [python, "-c", code, *map(str, arguments)]


# --- commands ------------------------------------------------------------------------------------


def command(read: Reading, *arguments: str, beside: dict[str, Sequence[str]]) -> Subjects:
    """Measure a command, beside other programs."""

    def make(bench: Bench) -> dict[str, Subject]:
        builds = bench.builds(lambda build: cost_of(read, build.command(*arguments), build=build))
        return builds | {name: cost_of(read, words) for name, words in beside.items()}

    return make


def command_on_small_run(read: Reading, *arguments: str) -> Subjects:
    """Measure a command on a run of 2,551 events; RUN in the arguments is its path."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            def run() -> float:
                path = bench.imported(build, bench.small_trace(), "small")
                words = [str(path) if word == "RUN" else word for word in arguments]
                return cost_of(read, build.command(*words), build=build)()

            return run

        libraries = cost_of(read, python_code("import numpy, duckdb"))
        return bench.builds(of_build) | {LIBRARIES: libraries}

    return make


def record_true(read: Reading) -> Subjects:
    """Measure `stepscope run -- true`, beside `true` alone."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            run = bench.work(build) / "true"
            return cost_of(read, [*build.record(run), "true"], build=build, fresh=run)

        return bench.builds(of_build) | {"`true` alone": cost_of(read, ["true"])}

    return make


def first_line(bench: Bench) -> dict[str, Subject]:
    """Measure the seconds until the first line of a job, beyond those without a launcher."""

    def until_first_line(words: Sequence[str], build: Build = OURS) -> float:
        start_ns = time.monotonic_ns()
        # The exit status does not count: py-spy fails where it could not write a profile.
        ended = subprocess.run(
            words, check=False, capture_output=True, text=True, env=build.environment
        )
        (number,) = [int(line) for line in ended.stdout.splitlines() if line.isdigit()]
        return (number - start_ns) / 1e9

    def under(launch: Callable[[Path], Sequence[str]], build: Build = OURS) -> Subject:
        def run() -> float:
            job = python_code(FIRST_LINE)
            with bench.scratch() as path:
                return until_first_line([*launch(path), *job], build) - until_first_line(job)

        return run

    def spy(path: Path) -> list[str]:
        return [bench.program("py-spy"), "record", "-o", str(path / "profile.svg"), "--"]

    builds = bench.builds(lambda build: under(lambda path: build.record(path / "run"), build))
    return builds | {"py-spy": under(spy)}


def footprint(bench: Bench) -> dict[str, Subject]:
    """Measure the memory of the processes of `stepscope run` beside a job, in MB."""

    def of_build(build: Build) -> Subject:
        def run() -> float:
            with bench.scratch() as path:
                words = [*build.record(path / "run"), *python_code(PACED)]
                launcher = subprocess.Popen(
                    words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=build.environment
                )
                try:
                    assert launcher.stdout is not None
                    job = int(launcher.stdout.readline())
                    time.sleep(SETTLE_S)
                    return (sum_memory(launcher.pid) - sum_memory(job)) / 1e6
                finally:
                    launcher.terminate()
                    launcher.communicate()

        return run

    return bench.builds(of_build)


def jobs_at_once(bench: Bench) -> dict[str, Subject]:
    """Measure the seconds that ten jobs take that start together."""

    def together(launch: Callable[[Path], Sequence[str]], build: Build = OURS) -> Subject:
        def run() -> float:
            with bench.scratch() as path:
                start_s = time.monotonic()
                jobs = [
                    subprocess.Popen(
                        [*launch(path / str(number)), *python_code(BUSY)],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env=build.environment,
                    )
                    for number in range(JOBS_AT_ONCE)
                ]
                if sum(abs(job.wait()) for job in jobs):
                    raise RuntimeError("a job has failed")
                return time.monotonic() - start_s

        return run

    builds = bench.builds(lambda build: together(build.record, build))
    return builds | {"the jobs alone": together(lambda _: [])}


# --- recording -----------------------------------------------------------------------------------


def short_steps(job: str, cores: int, *, share: bool = False, busy: bool = False) -> Subjects:
    """Measure what recording adds to a step, in µs or as a share in %."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            def run() -> float:
                available = sorted(os.sched_getaffinity(0))[:cores]
                options = short_step_cost.JOBS[job]
                if "lightning" in options:
                    bench.peer("lightning")
                with _busy_core(busy):
                    steps = short_step_cost.measure(options, available, PAIRS, build)
                extra = short_step_cost.summarize(*steps)["median_wall_ns"]
                return 100 * extra["ratio"] if share else extra["extra"] / 1e3

            return run

        return bench.builds(of_build)

    return make


@contextmanager
def _busy_core(busy: bool) -> Iterator[None]:
    """Keep one core busy, if so."""
    if not busy:
        yield
        return
    loop = subprocess.Popen(python_code("while True: pass"))
    try:
        yield
    finally:
        loop.terminate()
        loop.wait()


def annotation(*, recorded: bool) -> Subjects:
    """Measure the µs of one annotation."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            def run() -> float:
                with bench.scratch() as path:
                    return always_on_cost.measure_pair_ns(path, build, recorded=recorded) / 1e3

            return run

        return bench.builds(of_build)

    return make


def switched_recording(bench: Bench) -> dict[str, Subject]:
    """Measure by how many % a recorded step of 50 ms is longer than its unrecorded neighbours."""

    def of_build(build: Build) -> Subject:
        def run() -> float:
            with bench.scratch() as path:
                return 100 * (always_on_cost.measure_capture(path, build) - 1)

        return run

    return bench.builds(of_build)


def profilers(bench: Bench) -> dict[str, Subject]:
    """Measure the median step of about 50 ms, in ms, under each profiler and without any."""

    def under(
        launch: Callable[[Path], Sequence[str]], *options: str, build: Build = OURS
    ) -> Subject:
        def run() -> float:
            with bench.scratch() as path:
                out = path / "steps.json"
                steps = run_workload([*launch(path), str(out), *options], out, build)
            return quartiles(steps).median / 1e6

        return run

    def workload(build: Build = OURS) -> list[str]:
        return [sys.executable, str(find_workload("four_phases", build))]

    def viztracer(path: Path) -> list[str]:
        python, script = bench.peer("viztracer"), workload()[1]
        return [python, "-m", "viztracer", "-o", str(path / "trace.json"), "--", script]

    def spy(path: Path) -> list[str]:
        options = ["-o", str(path / "profile.svg"), "--"]
        return [bench.program("py-spy"), "record", *options, *workload()]

    def traceml(_: Path) -> list[str]:
        return [bench.program("traceml"), "run", workload()[1], "--args"]

    builds = bench.builds(
        lambda build: under(
            lambda path: [*build.record(path / "run"), *workload(build)], build=build
        )
    )
    return builds | {
        "no profiler": under(lambda _: workload()),
        "torch.profiler": under(lambda _: workload(), "--profiler"),
        "VizTracer": under(viztracer),
        "py-spy": under(spy),
        "TraceML": under(traceml),
    }


# --- traces and runs -----------------------------------------------------------------------------


def imports(read: Reading, kind: str) -> Subjects:
    """Measure the import of a million events, beside `json.load` of the file."""

    def make(bench: Bench) -> dict[str, Subject]:
        def load() -> float:
            words = python_code(import_trace.LOAD_JSON, bench.trace(kind, 1))
            return cost_of(read, words)()

        return bench.builds(lambda build: import_of(bench, read, kind, 1, build)) | {
            "json.load": load
        }

    return make


def import_of(bench: Bench, read: Reading, kind: str, million: int, build: Build) -> Subject:
    """Measure the import of millions of events."""

    def run() -> float:
        file, out = bench.trace(kind, million), bench.work(build) / "measured-import"
        words = import_trace.import_command([file], out, build=build)
        return cost_of(read, words, build=build, fresh=out)()

    return run


def large_import(read: Reading, kind: str, million: int) -> Subjects:
    """Measure the import of many events."""
    return lambda bench: bench.builds(lambda build: import_of(bench, read, kind, million, build))


def rank_traces(read: Reading, ranks: int) -> Subjects:
    """Measure import and view of many ranks as one command, beside HolisticTraceAnalysis."""

    def make(bench: Bench) -> dict[str, Subject]:
        def hta() -> float:
            python = bench.peer("hta")
            return cost_of(read, python_code(many_ranks.HTA, bench.traces(ranks), python=python))()

        builds = bench.builds(lambda build: ranks_of(bench, read, ranks, build))
        return builds | {"HolisticTraceAnalysis": hta}

    return make


def ranks_of(bench: Bench, read: Reading, ranks: int, build: Build) -> Subject:
    """Measure import and view of the traces of many ranks."""

    def run() -> float:
        cache = bench.work(build) / "cache"
        return read(many_ranks.show_traces(bench.traces(ranks), cache, build))

    return run


def long_run_of(
    bench: Bench, read: Reading, steps: int, arguments: Sequence[str], build: Build
) -> Subject:
    """Measure a command on a run of many steps; RUN in the arguments is its path."""

    def run() -> float:
        path = bench.long_run(build, steps)
        words = [str(path) if word == "RUN" else word for word in arguments]
        return cost_of(read, build.command(*words), build=build)()

    return run


def long_run(read: Reading, steps: int, *arguments: str) -> Subjects:
    """Measure a command on a run of many steps."""
    return lambda bench: bench.builds(
        lambda build: long_run_of(bench, read, steps, arguments, build)
    )


# --- the page ------------------------------------------------------------------------------------


def screen(*views: str) -> Subjects:
    """Measure the seconds until a server that has just started has answered a screen's views."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            return lambda: _serve(bench, build, views)[0]

        return bench.builds(of_build)

    return make


def server_memory(*views: str) -> Subjects:
    """Measure the memory of a server that has answered views, in MB."""

    def make(bench: Bench) -> dict[str, Subject]:
        def of_build(build: Build) -> Subject:
            return lambda: _serve(bench, build, views)[1]

        return bench.builds(of_build)

    return make


def _serve(bench: Bench, build: Build, views: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of the first answers, and the memory of the server in MB."""
    run = bench.imported(build, bench.trace("training", 1), "served/training")
    with _server(run.parent, build) as server:
        start_s = time.monotonic()
        for view in views:
            server.get(f"views/{view}", run=run.name)
        return time.monotonic() - start_s, sum_memory(server.pid) / 1e6


def list_jobs(bench: Bench, count: int, build: Build) -> Subject:
    """Measure the seconds until a server that has just started has listed many runs."""

    def run() -> float:
        with _server(bench.jobs(build, count), build) as server:
            start_s = time.monotonic()
            server.get("jobs")
            return time.monotonic() - start_s

    return run


def job_list(count: int) -> Subjects:
    """Measure the list of many runs."""
    return lambda bench: bench.builds(lambda build: list_jobs(bench, count, build))


@contextmanager
def _server(root: Path, build: Build) -> Iterator[Any]:
    from benchmarks.ui import Server  # it loads the driver of a browser

    server = Server(root, build)
    try:
        yield server
    finally:
        server.close()


# --- growth --------------------------------------------------------------------------------------


def growth(sizes: dict[str, int], make: Callable[[Bench, int, Build], Subject]) -> Subjects:
    """Measure this build at several sizes."""
    return lambda bench: {name: make(bench, size, OURS) for name, size in sizes.items()}
