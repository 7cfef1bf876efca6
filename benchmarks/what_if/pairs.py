"""Predicted savings of fixes against those that the fixes achieve."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.measuring import ROOT, measure
from benchmarks.what_if.jobs import Job
from benchmarks.what_if.recordings import import_traces
from benchmarks.what_if.results import PairResult
from benchmarks.what_if.training import TimedRound
from stepscope.analysis import find_fix
from stepscope.diagnosis.traces import trace_fixes, trace_shares
from stepscope.diagnosis.traces.trace_inputs import TraceInputs
from stepscope.diagnosis.verdict import Suspect
from stepscope.run import MAX_REPLAY_ERROR_RATIO, Run, RunGraph, build_run_graphs, divide_traces
from stepscope.views.steps.critical_path import parse_fixes

MODULE = "benchmarks.what_if.training"
LIMIT_S = 600


def measure_pair(job: Job, rounds: int, directory: Path) -> PairResult:
    """Time a loop with and without its fix, and predict the fix from recordings of it.

    Raises:
        CommandError: the loop failed, or did not end within the limit.
    """
    launcher = [sys.executable]
    if job.ranks > 1:
        options = ["--standalone", f"--nproc_per_node={job.ranks}"]
        launcher += ["-m", "torch.distributed.run", *options]
    arguments = ["-m", MODULE, job.name, str(directory), f"--rounds={rounds}"]
    measure([*launcher, *arguments], directory=ROOT, limit_s=LIMIT_S)
    timed = msgspec.json.decode((directory / "steps.json").read_bytes(), type=list[TimedRound])
    result = PairResult(
        fix=job.fix,
        true_fix=job.true_fix,
        is_off_path=job.is_off_path,
        before_ms=[one.before_ms for one in timed],
        fixed_ms=[one.fixed_ms for one in timed],
        recorded_ms=[],
        graph_ratios=[],
        share_ratios=[],
        error_ratios=[],
    )
    for number in range(rounds):
        paths = sorted((directory / str(number)).glob("rank*.json"))
        run, _ = import_traces(paths, directory / f"run{number}")
        _predict(job, run, result)
    return result


def _predict(job: Job, run: Run, result: PairResult) -> None:
    """Add the predictions of one recording."""
    (graph,) = build_run_graphs(run, run.traces)
    result.recorded_ms.append(graph.measured_ns / graph.step_count / 1e6)
    result.error_ratios.append(graph.error_ratio)
    result.graph_ratios.append(_simulate(graph, job.fix))
    result.share_ratios.append(_estimate_from_shares(job.cause, job.suspect, run))


def _simulate(graph: RunGraph, text: str) -> float | None:
    if abs(graph.error_ratio) > MAX_REPLAY_ERROR_RATIO:
        return None
    ((name, factor),) = parse_fixes(text)
    fix = find_fix(name)
    assert fix is not None
    return graph.simulate((fix, factor)).saving_ratio


def _estimate_from_shares(cause: str, suspect: Suspect, run: Run) -> float | None:
    """Estimate the saving as verdicts do where a trace has no graph."""
    if not suspect:
        return None
    traces = [one.without_start() for one in divide_traces(run)]
    waits = trace_shares.measure_waits(run, traces)
    shares = trace_shares.compute_trace_shares(trace_shares.build_part_matrix(traces), waits)
    inputs = TraceInputs(traces=traces, shares=shares, waits=waits)
    parts = inputs.overhead_parts
    cause = cause or max(parts, key=parts.__getitem__)
    return trace_fixes._measure_removable(cause, suspect, inputs)
