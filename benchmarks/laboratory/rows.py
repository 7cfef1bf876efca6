"""Table of all measurements.

Subjects are in `subjects`. A row of the quick set takes about a minute on two cores; the others
take up to an hour each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.laboratory.bench import EARLIER
from benchmarks.laboratory.subjects import (
    Subjects,
    annotation,
    at_sizes,
    browser_memory,
    command,
    command_on_small_run,
    cpu_seconds,
    first_line,
    footprint,
    framework_steps,
    import_of,
    imports,
    jobs_at_once,
    large_import,
    list_jobs,
    long_run,
    long_run_of,
    megabytes,
    of_builds,
    profilers,
    rank_traces,
    ranks_of,
    record_true,
    screen,
    seconds,
    server_memory,
    short_steps,
    switched_recording,
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    name: str
    unit: str
    subjects: Subjects
    yardstick: str | None = None
    """Subject to which ratios are computed."""
    target: float | None = None
    """The ratio to the yardstick should be at most this."""
    limit: float | None = None
    """The figure, in the unit, or the exponent should be at most this."""
    sizes: Mapping[str, float] | None = None
    """Size by subject, of a row that measures with which power of the size the figure grows."""
    rounds: int = 5
    is_quick: bool = False
    warm_up: bool = True


def exponent(factor: float, *, size_factor: float) -> float:
    """Return the exponent of a figure that grows by a factor with a size that grows by another."""
    return math.log(factor) / math.log(size_factor)


PASS = {"`python -c pass`": (sys.executable, "-c", "pass")}
ALONE = "the jobs alone"
WITHOUT_STORED = " without stored results"
"""Label of rows of commands that compute everything."""
STEPS = {"100,000 steps": 10**5, "1,000,000 steps": 10**6}
MANY_STEPS = {"1,000,000 steps": 10**6, "10,000,000 steps": 10**7}
RUNS = {"30 runs": 30, "300 runs": 300}
RANKS = {"8 ranks": 8, "64 ranks": 64}
MILLIONS = {"1 million events": 1, "5 million events": 5}
LARGE = {"5 million events": 5, "20 million events": 20}
SCREENS = {
    "Overview": ("overview", "dashboard"),
    "Timeline": ("timeline",),
    "Insights": ("insights",),
    "Operators": ("operators",),
    "Modules": ("modules", "modules-flame"),
    "Memory": ("memory",),
}
"""Views that a screen requests for its first picture."""

COMMANDS = (
    Row(
        name="`stepscope --version`",
        unit="CPU s",
        subjects=command(cpu_seconds, "--version", peers=PASS),
        yardstick="`python -c pass`",
        rounds=15,
        is_quick=True,
    ),
    Row(
        name="`stepscope --help`",
        unit="CPU s",
        subjects=command(cpu_seconds, "--help", peers=PASS),
        yardstick="`python -c pass`",
        rounds=15,
    ),
    *(
        Row(
            name=f"`{' '.join(words)}`{source}, 2,551 events",
            unit="CPU s",
            subjects=command_on_small_run(cpu_seconds, *words, stored=not source),
            yardstick=EARLIER,
            target=0.5,
            rounds=9,
            is_quick=True,
        )
        for words in (("show", "RUN", "gpu-time"), ("diagnose", "RUN"))
        for source in ("", WITHOUT_STORED)
    ),
    Row(
        name="`stepscope run -- true`",
        unit="s",
        subjects=record_true(seconds),
        yardstick=EARLIER,
        target=0.5,
        is_quick=True,
    ),
    Row(
        name="`stepscope run -- true`, all processes",
        unit="CPU s",
        subjects=record_true(cpu_seconds),
        yardstick=EARLIER,
        target=0.5,
    ),
    Row(
        name="first line of a job under a launcher, after that of the job alone",
        unit="s",
        subjects=first_line,
        yardstick=EARLIER,
        is_quick=True,
    ),
    Row(
        name="memory of `stepscope run` next to a job, without that of the job",
        unit="MB",
        subjects=of_builds(footprint),
        yardstick=EARLIER,
        target=0.5,
        rounds=3,
        is_quick=True,
        warm_up=False,
    ),
    Row(
        name="ten jobs at once, each under `stepscope run`",
        unit="s",
        subjects=jobs_at_once,
        yardstick=ALONE,
        target=1.15,
    ),
)

RECORDING = (
    Row(
        name="always-on recording of a step of 1 ms",
        unit="CPU µs",
        subjects=short_steps("plain, 1 ms", 2),
        yardstick=EARLIER,
        target=0.45,
        rounds=3,
        is_quick=True,
        warm_up=False,
    ),
    Row(
        name="always-on recording of a step of 1 ms, one core",
        unit="µs",
        subjects=short_steps("plain, 1 ms", 1, clock="wall"),
        yardstick=EARLIER,
        target=0.45,
    ),
    Row(
        name="always-on recording of a step of 1 ms, two cores, one of them busy",
        unit="µs",
        subjects=short_steps("plain, 1 ms", 2, clock="wall", busy=True),
        yardstick=EARLIER,
        target=0.45,
    ),
    Row(
        name="always-on recording of a step of 5 ms, share of the step",
        unit="%",
        subjects=short_steps("plain, 5 ms", 2, share=True),
        limit=0.5,
    ),
    Row(
        name="always-on recording of a step of 5 ms under Lightning, share of the step",
        unit="%",
        subjects=short_steps("Lightning, 5 ms", 2, share=True),
        limit=1.0,
    ),
    *(
        Row(
            name=f"recording of steps of {title}, share of their CPU time",
            unit="%",
            subjects=framework_steps(module, loop),
            limit=1.0,
        )
        for title, module, loop in (
            ("JAX", "jax", "jax"),
            ("Keras on JAX", "jax", "keras"),
            ("TensorFlow", "tensorflow", "tensorflow"),
            ("Keras on TensorFlow", "tensorflow", "keras"),
        )
    ),
    Row(
        name="recording of steps of 50 ms, switched on and off within a run, share of the step",
        unit="%",
        subjects=of_builds(switched_recording),
    ),
    Row(
        name="`annotate` in a recorded run",
        unit="µs",
        subjects=annotation(recorded=True),
        yardstick=EARLIER,
        limit=0.5,
        is_quick=True,
    ),
    Row(
        name="`annotate` with nothing recording",
        unit="µs",
        subjects=annotation(recorded=False),
        yardstick=EARLIER,
        limit=0.15,
        is_quick=True,
    ),
    Row(
        name="a step of 50 ms under a profiler for the whole run",
        unit="ms",
        subjects=profilers,
        yardstick="no profiler",
    ),
)

IMPORTS = (
    *(
        Row(
            name=f"import of 1 million events, {kind}",
            unit="s",
            subjects=imports(seconds, kind),
            yardstick="json.load",
            target=0.17,
            is_quick=True,
        )
        for kind in ("training", "stacks")
    ),
    *(
        Row(
            name=f"import of 20 million events, {kind}, memory",
            unit="MB",
            subjects=large_import(megabytes, kind, 20),
            yardstick=EARLIER,
            limit=900,
            rounds=1,
            warm_up=False,
        )
        for kind in ("training", "stacks")
    ),
    Row(
        name="import and `distributed` of 8 ranks",
        unit="s",
        subjects=rank_traces(seconds, 8),
        yardstick="HolisticTraceAnalysis",
        target=0.10,
    ),
    Row(
        name="import and `distributed` of 8 ranks, memory",
        unit="MB",
        subjects=rank_traces(megabytes, 8),
        yardstick="HolisticTraceAnalysis",
        target=0.33,
        rounds=3,
        warm_up=False,
    ),
)

PAGE = (
    *(
        Row(
            name=f"first answers for the screen {title}, 1 million events",
            unit="s",
            subjects=screen(*views),
            yardstick=EARLIER,
            limit=0.6,
            is_quick=title == "Insights",
        )
        for title, views in SCREENS.items()
    ),
    Row(
        name="memory of the server, 1 million events, after these screens",
        unit="MB",
        subjects=server_memory(*(view for views in SCREENS.values() for view in views)),
        yardstick=EARLIER,
        limit=200,
        rounds=3,
        warm_up=False,
    ),
    Row(
        name="memory of the browser with the timeline, 1 million events",
        unit="MB",
        subjects=browser_memory,
        yardstick="an empty page",
        target=1.3,
        rounds=3,
        warm_up=False,
    ),
    Row(
        name="list of 300 runs",
        unit="s",
        subjects=of_builds(lambda bench, build: list_jobs(bench, build, 300)),
        yardstick=EARLIER,
        limit=0.6,
    ),
)

LONG_RUNS = (
    Row(
        name="`diagnose RUN`, 100,000 steps",
        unit="s",
        subjects=long_run(seconds, 10**5, "diagnose", "RUN"),
        yardstick=EARLIER,
        limit=0.6,
        rounds=3,
        is_quick=True,
    ),
    *(
        Row(
            name=f"`{' '.join(words)}`, 1,000,000 steps{label}",
            unit=unit,
            subjects=long_run(read, 10**6, *words),
            yardstick=EARLIER,
            limit=limit,
            rounds=3,
        )
        for words in (("diagnose", "RUN"), ("show", "RUN", "overview"))
        for label, unit, read, limit in (
            ("", "s", seconds, 0.6),
            (", memory", "MB", megabytes, 300),
        )
    ),
    *(
        Row(
            name=f"`{' '.join(words)}`{WITHOUT_STORED}, 1,000,000 steps{label}",
            unit=unit,
            subjects=long_run(read, 10**6, *words, stored=False),
            yardstick=EARLIER,
            limit=limit,
            rounds=3,
        )
        for words in (("diagnose", "RUN"), ("show", "RUN", "steps"), ("show", "RUN", "timeline"))
        for label, unit, read, limit in (("", "s", seconds, 3), (", memory", "MB", megabytes, 300))
    ),
)

GROWTH = (
    Row(
        name="import, 1 to 5 million events",
        unit="s",
        subjects=at_sizes(MILLIONS, import_of(seconds, "training")),
        sizes=MILLIONS,
    ),
    Row(
        name="import, 5 to 20 million events",
        unit="s",
        subjects=at_sizes(LARGE, import_of(seconds, "training")),
        sizes=LARGE,
        limit=exponent(4.5, size_factor=4),
        rounds=3,
        warm_up=False,
    ),
    Row(
        name="import and `distributed`, 8 to 64 ranks",
        unit="s",
        subjects=at_sizes(RANKS, ranks_of(seconds)),
        sizes=RANKS,
        rounds=3,
    ),
    *(
        Row(
            name=f"`diagnose RUN`{source}, 100,000 to 1,000,000 steps{label}",
            unit=unit,
            subjects=at_sizes(STEPS, long_run_of(read, "diagnose", "RUN", stored=not source)),
            sizes=STEPS,
            limit=exponent(1.5, size_factor=10),
            rounds=3,
        )
        for source in ("", WITHOUT_STORED)
        for label, unit, read in (("", "s", seconds), (", memory", "MB", megabytes))
    ),
    *(
        Row(
            name=f"`diagnose RUN`{WITHOUT_STORED}, 1,000,000 to 10,000,000 steps{label}",
            unit=unit,
            subjects=at_sizes(MANY_STEPS, long_run_of(read, "diagnose", "RUN", stored=False)),
            sizes=MANY_STEPS,
            rounds=1,
            warm_up=False,
        )
        for label, unit, read in (("", "s", seconds), (", memory", "MB", megabytes))
    ),
    Row(name="list of 30 to 300 runs", unit="s", subjects=at_sizes(RUNS, list_jobs), sizes=RUNS),
)

ROWS: dict[str, tuple[Row, ...]] = {
    "Commands": COMMANDS,
    "Recording": RECORDING,
    "Imports": IMPORTS,
    "The page": PAGE,
    "Long runs": LONG_RUNS,
    "Growth": GROWTH,
}
"""Rows by the subject of their section."""


def all_rows() -> dict[str, Row]:
    """Return all rows by name."""
    return {row.name: row for rows in ROWS.values() for row in rows}
