"""Subjects of the rows: functions that make, from the inputs, a measurement for each name."""

from __future__ import annotations

import json
import os
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
OfBuild = Callable[[Bench, Build], float]
"""A measurement of one build."""
OfSize = Callable[[Bench, Build, int], float]
"""A measurement of one build at one size."""
Launch = Callable[[Path], Sequence[str]]
"""Return what stands before the command line of a job, given a directory for output."""
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


def of_builds(measure_build: OfBuild) -> Subjects:
    """Measure this build and the earlier one."""
    return lambda bench: bench.builds(lambda build: lambda: measure_build(bench, build))


def at_sizes(sizes: dict[str, int], measure_size: OfSize) -> Subjects:
    """Measure this build at several sizes."""

    def subject(bench: Bench, size: int) -> Subject:
        return lambda: measure_size(bench, OURS, size)

    return lambda bench: {name: subject(bench, size) for name, size in sizes.items()}


def run_command(
    read: Reading, command: Sequence[str], build: Build = OURS, **variables: str
) -> float:
    """Run a command to its end, with further environment variables, and read its cost."""
    environment = {**build.environment, **variables}
    samples_memory = read is megabytes
    return read(
        measure(command, environment=environment, samples_memory=samples_memory, limit_s=LIMIT_S)
    )


def run_on(
    read: Reading, build: Build, run: Path, arguments: Sequence[str], **variables: str
) -> float:
    """Measure a command on a run; RUN in the arguments is its path."""
    words = [run if word == "RUN" else word for word in arguments]
    return run_command(read, build.command(*words), build, **variables)


def python_code(code: str, *arguments: object, python: str = sys.executable) -> list[str]:
    """Return the command line of a few lines of Python."""
    return [python, "-c", code, *map(str, arguments)]


# --- commands ------------------------------------------------------------------------------------


def command(read: Reading, *arguments: str, peers: dict[str, Sequence[str]]) -> Subjects:
    """Measure a command, and other programs."""
    builds = of_builds(lambda _, build: run_command(read, build.command(*arguments), build))

    def program(words: Sequence[str]) -> Subject:
        return lambda: run_command(read, words)

    return lambda bench: builds(bench) | {name: program(words) for name, words in peers.items()}


NOT_STORED = {"STEPSCOPE_STORED_RESULTS": "0"}


def command_on_small_run(read: Reading, *arguments: str, stored: bool = True) -> Subjects:
    """Measure a command on a run of 2,551 events, and the import of the libraries alone.

    Args:
        stored: it reads what an earlier look has stored; otherwise it computes everything.
    """
    variables = {} if stored else NOT_STORED

    def measure_build(bench: Bench, build: Build) -> float:
        run = bench.imported(build, bench.small_trace(), "small")
        return run_on(read, build, run, arguments, **variables)

    libraries = python_code("import numpy, duckdb")
    return lambda bench: (
        of_builds(measure_build)(bench) | {LIBRARIES: lambda: run_command(read, libraries)}
    )


def record_true(read: Reading) -> Subjects:
    """Measure `stepscope run -- true`, and `true` alone."""

    def measure_build(bench: Bench, build: Build) -> float:
        with bench.scratch() as path:
            return run_command(read, [*build.record(path / "run"), "true"], build)

    return lambda bench: (
        of_builds(measure_build)(bench) | {"`true` alone": lambda: run_command(read, ["true"])}
    )


def first_line(bench: Bench) -> dict[str, Subject]:
    """Measure the seconds until the first line of a job, beyond those without a launcher."""
    job = python_code(FIRST_LINE)

    def until_first_line(words: Sequence[str], build: Build = OURS) -> float:
        start_ns = time.monotonic_ns()
        # The exit status does not count: py-spy fails where it could not write a profile.
        ended = subprocess.run(
            words, check=False, capture_output=True, text=True, env=build.environment
        )
        (number,) = [int(line) for line in ended.stdout.splitlines() if line.isdigit()]
        return (number - start_ns) / 1e9

    def under(launch: Launch, build: Build = OURS) -> float:
        with bench.scratch() as path:
            return until_first_line([*launch(path), *job], build) - until_first_line(job)

    builds = of_builds(lambda _, build: under(lambda path: build.record(path / "run"), build))
    return builds(bench) | {"py-spy": lambda: under(lambda path: record_with_spy(bench, path))}


def record_with_spy(bench: Bench, path: Path) -> list[str]:
    """Return the command line of py-spy, which that of a job follows."""
    return [bench.program("py-spy"), "record", "-o", str(path / "profile.svg"), "--"]


def footprint(bench: Bench, build: Build) -> float:
    """Measure the memory of the processes of `stepscope run` beside a job, in MB."""
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


def jobs_at_once(bench: Bench) -> dict[str, Subject]:
    """Measure the seconds that ten jobs take that start together."""

    def together(launch: Launch, build: Build = OURS) -> float:
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
            statuses = [job.wait() for job in jobs]
            if any(statuses):
                raise RuntimeError("a job has failed")
            return time.monotonic() - start_s

    builds = of_builds(lambda _, build: together(build.record, build))
    return builds(bench) | {"the jobs alone": lambda: together(lambda _: [])}


# --- recording -----------------------------------------------------------------------------------


def short_steps(
    job: str, cores: int, *, clock: str = "thread_cpu", share: bool = False, busy: bool = False
) -> Subjects:
    """Measure what recording adds to a step, in µs or as a share in %.

    Args:
        job: one of `short_step_cost`.
        cores: cores that the job shares with its monitor.
        clock: "thread_cpu", the CPU time of the training thread, or "wall", with all that it waits
            for.
        share: whether the figure is a share of the step.
        busy: whether something else keeps one core busy.
    """

    def measure_build(bench: Bench, build: Build) -> float:
        options = short_step_cost.JOBS[job]
        if "lightning" in options:
            bench.peer("lightning")
        available = sorted(os.sched_getaffinity(0))[:cores]
        with _busy_core(busy):
            steps = short_step_cost.measure(options, available, PAIRS, build)
        extra = short_step_cost.summarize(*steps)[f"median_{clock}_ns"]
        return 100 * extra["ratio"] if share else extra["extra"] / 1e3

    return of_builds(measure_build)


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


def framework_steps(module: str, loop: str) -> Subjects:
    """Measure what recording adds to the CPU time of a step of another framework, in %."""

    def measure_build(bench: Bench, build: Build) -> float:
        script = build.root / "benchmarks" / "framework_overhead.py"
        with bench.scratch() as path:
            words = build.record(path / "run", "--window", "off", "--no-rules")
            words += [bench.peer(module), str(script), loop, "--out", str(path / "figures.json")]
            environment = {**build.environment, "KERAS_BACKEND": module}
            measure(words, environment=environment, limit_s=LIMIT_S)
            figures = json.loads((path / "figures.json").read_text())
        return 100 * float(figures["cost_ratio"])

    return of_builds(measure_build)


def annotation(*, recorded: bool) -> Subjects:
    """Measure the µs of one annotation."""

    def measure_build(bench: Bench, build: Build) -> float:
        with bench.scratch() as path:
            return always_on_cost.measure_pair_ns(path, build, recorded=recorded) / 1e3

    return of_builds(measure_build)


def switched_recording(bench: Bench, build: Build) -> float:
    """Measure by how many % a recorded step of 50 ms is longer than its unrecorded neighbours."""
    with bench.scratch() as path:
        return 100 * (always_on_cost.measure_capture(path, build) - 1)


def profilers(bench: Bench) -> dict[str, Subject]:
    """Measure the median step of about 50 ms, in ms, under each profiler and without any."""

    def under(launch: Launch, *options: str, build: Build = OURS) -> float:
        with bench.scratch() as path:
            out = path / "steps.json"
            steps = run_workload([*launch(path), str(out), *options], out, build)
        return quartiles(steps).median / 1e6

    def workload(build: Build = OURS) -> list[str]:
        return [sys.executable, str(find_workload("four_phases", build))]

    def viztracer(path: Path) -> list[str]:
        program = [bench.peer("viztracer"), "-m", "viztracer"]
        return [*program, "-o", str(path / "trace.json"), "--", workload()[1]]

    def record(build: Build) -> float:
        return under(lambda path: [*build.record(path / "run"), *workload(build)], build=build)

    return of_builds(lambda _, build: record(build))(bench) | {
        "no profiler": lambda: under(lambda _: workload()),
        "torch.profiler": lambda: under(lambda _: workload(), "--profiler"),
        "VizTracer": lambda: under(viztracer),
        "py-spy": lambda: under(lambda path: [*record_with_spy(bench, path), *workload()]),
        "TraceML": lambda: under(
            lambda _: [bench.program("traceml"), "run", workload()[1], "--args"]
        ),
    }


# --- traces and runs -----------------------------------------------------------------------------


def imports(read: Reading, kind: str) -> Subjects:
    """Measure the import of a million events, and `json.load` of the file."""

    def make(bench: Bench) -> dict[str, Subject]:
        def load() -> float:
            return run_command(read, python_code(import_trace.LOAD_JSON, bench.trace(kind, 1)))

        return large_import(read, kind, 1)(bench) | {"json.load": load}

    return make


def import_of(read: Reading, kind: str) -> OfSize:
    """Measure the import of millions of events."""

    def measure_size(bench: Bench, build: Build, million: int) -> float:
        file = bench.trace(kind, million)
        with bench.scratch() as path:
            words = import_trace.import_command([file], path / "run", build=build)
            return run_command(read, words, build)

    return measure_size


def large_import(read: Reading, kind: str, million: int) -> Subjects:
    """Measure the import of many events."""
    return of_builds(lambda bench, build: import_of(read, kind)(bench, build, million))


def ranks_of(read: Reading) -> OfSize:
    """Measure import and view of the traces of many ranks as one command."""

    def measure_size(bench: Bench, build: Build, ranks: int) -> float:
        cache = bench.work(build) / "cache"
        traces, samples_memory = bench.traces(ranks), read is megabytes
        return read(many_ranks.show_traces(traces, cache, build, samples_memory=samples_memory))

    return measure_size


def rank_traces(read: Reading, ranks: int) -> Subjects:
    """Measure import and view of many ranks, and HolisticTraceAnalysis on the same traces."""

    def make(bench: Bench) -> dict[str, Subject]:
        def hta() -> float:
            words = python_code(many_ranks.HTA, bench.traces(ranks), python=bench.peer("hta"))
            return run_command(read, words)

        builds = of_builds(lambda bench, build: ranks_of(read)(bench, build, ranks))
        return builds(bench) | {"HolisticTraceAnalysis": hta}

    return make


def long_run_of(read: Reading, *arguments: str, stored: bool = True) -> OfSize:
    """Measure a command on a run of many steps; RUN in the arguments is its path.

    Args:
        stored: it reads what an earlier look has stored; otherwise it computes everything.
    """
    variables = {} if stored else NOT_STORED
    return lambda bench, build, steps: run_on(
        read, build, bench.long_run(build, steps), arguments, **variables
    )


def long_run(read: Reading, steps: int, *arguments: str, stored: bool = True) -> Subjects:
    """Measure a command on a run of many steps, as `long_run_of` does."""
    measure_size = long_run_of(read, *arguments, stored=stored)
    return of_builds(lambda bench, build: measure_size(bench, build, steps))


# --- the page ------------------------------------------------------------------------------------


def screen(*views: str) -> Subjects:
    """Measure the seconds until a server that has just started has answered a screen's views."""
    return of_builds(lambda bench, build: _serve(bench, build, views)[0])


def server_memory(*views: str) -> Subjects:
    """Measure the memory of a server that has answered views, in MB."""
    return of_builds(lambda bench, build: _serve(bench, build, views)[1])


def _serve(bench: Bench, build: Build, views: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of the first answers, and the memory of the server in MB."""
    run = _served_run(bench, build)
    with _server(run.parent, build) as server:
        start_s = time.monotonic()
        for view in views:
            server.get(f"views/{view}", run=run.name)
        return time.monotonic() - start_s, sum_memory(server.pid) / 1e6


def _served_run(bench: Bench, build: Build) -> Path:
    return bench.imported(build, bench.trace("training", 1), "served/training")


def browser_memory(bench: Bench) -> dict[str, Subject]:
    """Measure the memory of Chromium that shows overview and timeline, or nothing, in MB."""

    def shows(build: Build, *, run: Path | None) -> float:
        from benchmarks import ui

        with (
            _server(_served_run(bench, build).parent, build) as server,
            ui.open_page(server) as page,
        ):
            if run is not None:
                ui.measure_opening(page, server, run.name)
            return float(ui.memory_mb(ui.browser_processes()))

    builds = of_builds(lambda _, build: shows(build, run=_served_run(bench, build)))
    return builds(bench) | {"an empty page": lambda: shows(OURS, run=None)}


def list_jobs(bench: Bench, build: Build, count: int) -> float:
    """Measure the seconds until a server that has just started has listed many runs."""
    with _server(bench.jobs(build, count), build) as server:
        start_s = time.monotonic()
        server.get("jobs")
        return time.monotonic() - start_s


@contextmanager
def _server(root: Path, build: Build) -> Iterator[Any]:
    from benchmarks.ui import Server  # it loads the driver of a browser

    server = Server(root, build)
    try:
        yield server
    finally:
        server.close()
