"""Views over many ranks: time, memory, and growth with the number of ranks.

    python -m benchmarks.many_ranks always-on [--ranks 1024] [--steps 10000] [--directory DIR]
    python -m benchmarks.many_ranks traces [--ranks 8 64 512] [--copies 2] [--directory DIR]
                                           [--hta PYTHON]
    python -m benchmarks.many_ranks dask [--ranks 1024] [--steps 10000] [--directory DIR]

always-on   `stepscope show RUN ranks` of a generated run of spans alone, eight ranks on each node,
            one of them late; and the size of the run per rank and hour
traces      import and `stepscope show RUN distributed` of a trace per rank, made of a recording in
            ../shared/traces by its tool; exponent of the growth of CPU time with the ranks, and
            memory relative to that of the fewest ranks; both as one command, `stepscope show TRACES
            distributed`; with --hta, the path of a Python that has HolisticTraceAnalysis, that
            loads the same traces and computes what `distributed` shows: temporal breakdown, overlap
            of communication, and kernels
dask        `ranks` of the run of always-on by a Dask scheduler with one worker and with two

Measured of each command: seconds, CPU time and memory of its processes (measuring.py). Each part
replaces its own figures in benchmarks/results/many_ranks.json.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.measuring import OURS, Build, Cost, measure
from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, NodeInfo, ProcessInfo, RunInfo
from stepscope.store import DictColumn, RunWriter, create_run

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "many_ranks.json"
SHARED = HERE.parents[1] / "shared"
RECORDING = "ddp_2ranks_nccl.a100.json.gz"
"""Forty thousand events."""
EPOCH_NS = 1_700_000_000_000_000_000
RANKS_PER_NODE = 8
STEP_NS = 360_000_000
"""Duration of a step: 10,000 of them are an hour."""
LATE_RANK_SHARE = 3
"""The late rank is the number of ranks divided by this."""
PARTS = {"data_wait": 0.05, "forward": 0.25, "backward": 0.40, "communication": 0.20}
"""Share of a step that its spans take on a rank that is not late; the optimizer takes the rest."""
MAX_HTA_RANKS = 64
"""Ranks whose traces HolisticTraceAnalysis loads in minutes."""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_dir=sys.argv[1])
traces.get_temporal_breakdown(visualize=False)
traces.get_comm_comp_overlap(visualize=False)
traces.get_gpu_kernel_breakdown(visualize=False)
"""


class AlwaysOnResult(msgspec.Struct):
    """Cost of `ranks` on a run without traces."""

    ranks: int
    steps: int
    run_mb_per_rank_hour: float
    show: Cost


class TraceCost(msgspec.Struct):
    """Cost of one number of traces."""

    ranks: int
    import_traces: Cost
    show: Cost
    show_traces: Cost
    """`stepscope show TRACES distributed`: import and view as one command."""
    hta: Cost | None = None
    """HolisticTraceAnalysis on the same traces, also one command."""


class TraceResult(msgspec.Struct):
    """Growth of the cost with the number of traces."""

    copies: int
    """Repetitions of the recording in each trace."""
    costs: list[TraceCost]
    import_exponent: float
    """CPU time grows with this power of the number of ranks."""
    show_exponent: float
    memory_ratio: float
    """Memory of `distributed` with the most ranks relative to that with the fewest."""


class DaskResult(msgspec.Struct):
    """Seconds of `ranks` by the number of Dask workers."""

    ranks: int
    steps: int
    seconds: dict[int, float]
    speedup: float


class Result(msgspec.Struct):
    """Figures of all parts."""

    always_on: AlwaysOnResult | None = None
    traces: TraceResult | None = None
    dask: DaskResult | None = None


def draw_run(directory: Path, *, ranks: int, steps: int) -> Path:
    """Write a run of spans of data-parallel training, in which one rank is late."""
    run = directory / f"always-on-{ranks}x{steps}"
    if run.exists():
        return run
    staged = directory / f".{run.name}"
    create_run(
        staged,
        RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="generated",
            created_ns=EPOCH_NS,
            command=["python", "train.py"],
            working_directory="/job",
            stepscope_version="0",
        ),
    )
    # All ranks leave the communication of a step together.
    random = np.random.default_rng(29)
    ends = EPOCH_NS + np.cumsum(STEP_NS + random.integers(-(10**6), 10**6, steps))
    starts = np.append(EPOCH_NS, ends[:-1])
    for first in range(0, ranks, RANKS_PER_NODE):
        node = f"n{first // RANKS_PER_NODE:04}"
        with RunWriter(staged, node) as writer:
            writer.put_node(describe_node(node))
            writer.put_status(
                JobStatus(
                    state=JobState.COMPLETED,
                    heartbeat_ns=int(ends[-1]),
                    started_ns=EPOCH_NS,
                    exit_code=0,
                )
            )
            for rank in range(first, min(ranks, first + RANKS_PER_NODE)):
                process = ProcessInfo(
                    process=f"{1000 + rank}-{node}-0",
                    node=node,
                    pid=1000 + rank,
                    parent_pid=1,
                    started_ns=EPOCH_NS,
                    role="main",
                    rank=rank,
                    local_rank=rank - first,
                    world_size=ranks,
                )
                writer.put_process(process)
                is_late = rank == ranks // LATE_RANK_SHARE
                writer.append("spans", draw_spans(process, starts, ends, is_late=is_late))
    staged.rename(run)
    return run


def describe_node(node: str) -> NodeInfo:
    """Describe a node of the generated run."""
    return NodeInfo(
        node=node,
        platform="Linux",
        cpu_model="generated",
        cores_total=64,
        cores_available=64,
        memory_bytes=512 << 30,
        memory_limit_bytes=None,
        sample_interval_ns=500_000_000,
        spool="/spool",
        clock_anchor_monotonic_ns=0,
        clock_anchor_epoch_ns=EPOCH_NS,
    )


def draw_spans(
    process: ProcessInfo, starts: np.ndarray, ends: np.ndarray, *, is_late: bool
) -> dict[str, object]:
    """Draw the spans of one rank: five a step, back to back, with jitter."""
    random = np.random.default_rng(process.rank)
    wall = ends - starts
    parts = {name: wall * share for name, share in PARTS.items()}
    for name in ("data_wait", "forward", "backward"):
        jitter = parts[name] * random.normal(0, 0.01, len(wall))
        parts[name] = parts[name] + jitter
        parts["communication"] = parts["communication"] - jitter
    if is_late:
        parts["data_wait"] = parts["data_wait"] + 0.12 * wall
        parts["communication"] = parts["communication"] - 0.12 * wall
    edges = starts[:, None] + np.cumsum(np.stack([*parts.values()], axis=1), axis=1).astype(int)
    edges = np.column_stack([starts, edges, ends])
    kinds = [*parts, "optimizer"]
    count = len(kinds) * len(wall)
    constants = {"node": process.node, "process": process.process, "log": f"{process.pid}c"}
    code = np.tile(np.arange(len(kinds), dtype=np.int32), len(wall))
    value = np.where(np.tile([kind == "data_wait" for kind in kinds], len(wall)), -1, 1)
    return {
        **{name: DictColumn.constant(text, count) for name, text in constants.items()},
        "seq": np.arange(count),
        "kind": DictColumn(code, kinds),
        "name": DictColumn.constant("", count),
        "labels": DictColumn.constant(None, count),
        "start_ns": edges[:, :-1].reshape(-1),
        "end_ns": edges[:, 1:].reshape(-1),
        "depth": np.zeros(count, dtype=np.int64),
        "flags": np.zeros(count, dtype=np.int64),
        "value": value,
    }


def show(run: Path, view: str, *options: str) -> Cost:
    """Measure `stepscope show`."""
    return measure(OURS.command("show", run, view, "--json", *options), samples_memory=True)


def show_traces(
    traces: Path, cache: Path, build: Build = OURS, *, samples_memory: bool = True
) -> Cost:
    """Measure `stepscope show` of traces that were not imported before."""
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**build.environment, "XDG_CACHE_HOME": str(cache)}
    command = build.command("show", traces, "distributed", "--json")
    return measure(command, environment=environment, samples_memory=samples_memory)


def write_traces(traces: Path, ranks: int, copies: int) -> Path:
    """Write a trace per rank of many copies of the recording, unless they exist."""
    if not traces.exists():
        tool = [sys.executable, str(SHARED / "tools" / "make_big_trace.py")]
        recording = str(SHARED / "traces" / RECORDING)
        options = ["--ranks", str(ranks), "--copies", str(copies)]
        subprocess.run([*tool, recording, str(traces), *options], check=True)
    return traces


def measure_always_on(directory: Path, ranks: int, steps: int) -> AlwaysOnResult:
    """Measure `ranks` of a run without traces."""
    run = draw_run(directory, ranks=ranks, steps=steps)
    size_bytes = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    hours = steps * STEP_NS / 3.6e12
    return AlwaysOnResult(
        ranks=ranks,
        steps=steps,
        run_mb_per_rank_hour=size_bytes / 1e6 / ranks / hours,
        show=show(run, "ranks"),
    )


def measure_traces(
    directory: Path, rank_counts: Sequence[int], copies: int, hta: str | None
) -> TraceResult:
    """Measure import and `distributed` of different numbers of traces, and HTA on the same ones."""
    costs = []
    for ranks in rank_counts:
        traces = write_traces(directory / f"traces-{ranks}x{copies}", ranks, copies)
        run = directory / f"imported-{ranks}x{copies}"
        shutil.rmtree(run, ignore_errors=True)
        cost = TraceCost(
            ranks,
            measure(OURS.command("import", traces, "-o", run), samples_memory=True),
            show(run, "distributed"),
            show_traces(traces, directory / "cache"),
        )
        if hta is not None and ranks <= MAX_HTA_RANKS:
            cost.hta = measure([hta, "-c", HTA, str(traces)], samples_memory=True)
        costs.append(cost)
    return TraceResult(
        copies=copies,
        costs=costs,
        import_exponent=fit_exponent([(c.ranks, c.import_traces.cpu_s) for c in costs]),
        show_exponent=fit_exponent([(c.ranks, c.show.cpu_s) for c in costs]),
        memory_ratio=costs[-1].show.memory_mb / costs[0].show.memory_mb,
    )


def fit_exponent(points: Sequence[tuple[int, float]]) -> float:
    """Fit the exponent of a power law: the slope of the logarithms by least squares."""
    sizes, costs = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(sizes, costs, 1)[0])


def measure_dask(directory: Path, ranks: int, steps: int) -> DaskResult:
    """Measure `ranks` by schedulers with one worker and with two."""
    from tests.support.dask_cluster import dask_cluster

    run = draw_run(directory, ranks=ranks, steps=steps)
    seconds = {}
    for workers in (1, 2):
        with dask_cluster(workers) as address:
            seconds[workers] = show(run, "ranks", "--scheduler", address).seconds
    return DaskResult(ranks=ranks, steps=steps, seconds=seconds, speedup=seconds[1] / seconds[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["always-on", "traces", "dask"])
    parser.add_argument("--ranks", type=int, nargs="+", help="default: 1024; of traces 8 64 512")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--copies", type=int, default=2, help="of the recording in each trace")
    parser.add_argument("--hta", metavar="PYTHON", help="that has HolisticTraceAnalysis")
    parser.add_argument("--directory", type=Path, help="where inputs are kept; default: a new one")
    arguments = parser.parse_args()
    result = msgspec.json.decode(RESULT.read_bytes(), type=Result) if RESULT.exists() else Result()
    with tempfile.TemporaryDirectory(prefix="stepscope-many-ranks-") as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(exist_ok=True)
        ranks = arguments.ranks or [1024]
        if arguments.part == "always-on":
            result.always_on = measure_always_on(directory, ranks[0], arguments.steps)
        elif arguments.part == "dask":
            result.dask = measure_dask(directory, ranks[0], arguments.steps)
        else:
            rank_counts = arguments.ranks or [8, 64, 512]
            result.traces = measure_traces(directory, rank_counts, arguments.copies, arguments.hta)
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(RESULT.read_text(), end="")


if __name__ == "__main__":
    main()
