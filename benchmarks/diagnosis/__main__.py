"""Benchmark of the verdict on training jobs with labelled causes.

    python -m benchmarks.diagnosis                    all scenarios, about an hour on two cores
    python -m benchmarks.diagnosis --each-cause-once  one scenario per cause
    python -m benchmarks.diagnosis --subset           the quick scenarios, ten minutes
    python -m benchmarks.diagnosis --only NAME        one scenario
    python -m benchmarks.diagnosis --traces           traces of the jobs by torch.profiler alone
    python -m benchmarks.diagnosis --traces --drawn   drawn traces alone, five minutes
    python -m benchmarks.diagnosis --traceml PROGRAM  also TraceML on the same jobs (pip install
                                                      traceml-ai in an environment with PyTorch)

Every scenario runs once per seed, with its severities in turn, and then with its true fix applied.
An interrupted benchmark continues; --again repeats disturbed runs, --fresh all runs. Do not run
anything else on the machine meanwhile. Writes benchmarks/results/diagnosis.json and .md, or
diagnosis-subset.*, diagnosis-traces.* or diagnosis-traces-drawn.*; for any other selection of
scenarios it prints the page, and writes it only with --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.diagnosis import catalogue, running, traceml
from benchmarks.diagnosis.catalogue import Scenario, ScenarioError
from benchmarks.diagnosis.outcomes import Job, Outcome, OutcomeLog
from benchmarks.diagnosis.page import collect_calibrations, render
from benchmarks.diagnosis.plot import plot_reliability
from benchmarks.diagnosis.results import DISTURBED_CORES, SPLITS, Row, build_rows, summarize
from benchmarks.diagnosis.trace_labels import split_scenarios
from benchmarks.diagnosis.trace_page import count_groups, render_traces
from stepscope._version import __version__

RESULTS = Path(__file__).resolve().parents[1] / "results"
LOG = RESULTS / "diagnosis.jsonl.tmp"
PLOT_SUFFIX = "-reliability.svg"


def main() -> None:
    options = _parser().parse_args()
    options.seeds = options.seeds or (1 if options.subset else 3)
    if options.traces and options.traceml is not None:
        raise SystemExit("--traces and --traceml exclude each other")
    if options.judge_again and options.keep_runs is None:
        raise SystemExit("--judge-again requires --keep-runs DIR with the runs")
    if options.traceml is not None and not options.traceml.exists():
        raise SystemExit(f"{options.traceml} does not exist")
    try:
        scenarios, omitted = select_scenarios(options)
    except ScenarioError as error:
        raise SystemExit(str(error)) from error
    if options.fresh:
        options.kept.unlink(missing_ok=True)
    jobs = list(plan_jobs(scenarios, options))
    if options.judge_again:
        outcomes = list(rediagnose_all(jobs, options))
    else:
        outcomes = list(run_all(jobs, scenarios, options))
    rows = build_rows(scenarios, outcomes)
    name = _name_results(options)
    files = (
        _report_traces(rows, outcomes, omitted)
        if options.traces
        else _report(rows, outcomes, plot_name=name + PLOT_SUFFIX)
    )
    print(files[".md"])
    directory = options.out or (RESULTS if _is_complete(options) else None)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for suffix, text in files.items():
            (directory / (name + suffix)).write_text(text)
        print(f"written to {directory / name}.json and .md", file=sys.stderr)


def select_scenarios(
    options: argparse.Namespace,
) -> tuple[list[Scenario], list[tuple[Scenario, str]]]:
    """Select scenarios by the options.

    Returns:
        The scenarios to run, and those that traces cannot show with the reason.
    """
    scenarios = catalogue.find_scenarios([catalogue.HERE, *options.scenarios])
    omitted: list[tuple[Scenario, str]] = []
    if options.only:
        unknown = set(options.only) - {scenario.name for scenario in scenarios}
        if unknown:
            raise ScenarioError(f"unknown scenarios: {', '.join(sorted(unknown))}")
        scenarios = [scenario for scenario in scenarios if scenario.name in options.only]
    if options.subset:
        scenarios = [scenario for scenario in scenarios if scenario.label.quick]
    if options.drawn:
        scenarios = [scenario for scenario in scenarios if scenario.label.drawn]
    if options.held_out != "include":
        held_out = options.held_out == "only"
        scenarios = [scenario for scenario in scenarios if scenario.label.held_out == held_out]
    if options.traces:
        scenarios, omitted = split_scenarios(scenarios)
    if options.each_cause_once:
        # Drawn traces are a group of their own, and quick.
        drawn = [one for one in scenarios if options.traces and one.label.drawn]
        recorded = [scenario for scenario in scenarios if scenario not in drawn]
        scenarios = catalogue.select_one_per_cause(recorded) + drawn
    return scenarios, omitted


def plan_jobs(scenarios: Sequence[Scenario], options: argparse.Namespace) -> Iterator[Job]:
    """Plan all runs: each scenario once before any second run."""
    counts = [_count_runs(scenario, options) for scenario in scenarios]
    for seed in range(max(counts, default=0)):
        for scenario, count in zip(scenarios, counts, strict=True):
            if seed >= count:
                continue
            severities = scenario.label.severities
            # In the subset, each scenario has one run, of medium severity.
            index = seed if count > 1 else len(severities) // 2
            job = Job(
                # The verdict on a drawn run of traces is one on traces already.
                tool="traces" if options.traces and not scenario.label.drawn else "stepscope",
                scenario=scenario.name,
                severity=severities[index % len(severities)],
                seed=seed,
            )
            yield job
            if not scenario.label.healthy and options.twins and not options.traces:
                yield msgspec.structs.replace(job, fixed=True)
            if options.traceml is not None and seed in (options.traceml_seeds or [seed]):
                yield msgspec.structs.replace(job, tool="TraceML")


def _count_runs(scenario: Scenario, options: argparse.Namespace) -> int:
    """Count the runs of a scenario: one per seed, but per severity of a drawn trace, which is
    drawn in seconds and does not depend on the seed."""
    if options.traces and scenario.label.drawn:
        return len(scenario.label.severities)
    seeds: int = options.seeds
    return seeds


def run_all(
    jobs: Sequence[Job], scenarios: Sequence[Scenario], options: argparse.Namespace
) -> Iterator[Outcome]:
    """Run jobs and yield their outcomes; logged outcomes are reused."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    log = OutcomeLog(options.kept)
    start = time.monotonic()
    for number, job in enumerate(jobs, start=1):
        scenario = by_name[job.scenario]
        outcome = log.get(job, _depends_on(job, scenario, options))
        if outcome is None or (options.again and outcome.outside_cores > DISTURBED_CORES):
            outcome = _run(job, scenario, options)
            log.add(outcome)
            elapsed = f"{(time.monotonic() - start) / 60:.1f} min"
            print(
                f"[{number}/{len(jobs)}, {elapsed}] {_line(outcome)}", file=sys.stderr, flush=True
            )
        yield outcome


def rediagnose_all(jobs: Sequence[Job], options: argparse.Namespace) -> Iterator[Outcome]:
    """Yield the outcomes of earlier runs with the current verdicts."""
    log = OutcomeLog(options.kept)
    for job in jobs:
        outcome, run = log.latest(job), options.keep_runs / job.directory
        if outcome is None:
            continue
        has_run = job.tool != "TraceML" and run.exists()
        yield running.rediagnose(outcome, run) if has_run else outcome


def _run(job: Job, scenario: Scenario, options: argparse.Namespace) -> Outcome:
    if job.tool == "TraceML":
        return traceml.run_job(job, scenario, program=options.traceml)
    return running.run_job(job, scenario, keep=options.keep_runs)


def _depends_on(job: Job, scenario: Scenario, options: argparse.Namespace) -> str:
    if job.tool == "TraceML":
        return traceml.compute_digest(scenario, options.traceml)
    return running.compute_digest(scenario)


def _line(outcome: Outcome) -> str:
    job, answer, metered = outcome.job, outcome.answer, outcome.metered
    label = f"{job.scenario} {job.severity:g}{' fixed' if job.fixed else ''}, {job.tool}: "
    if answer is None:
        return label + f"{outcome.status}: {outcome.reason[:300]}"
    step = f", {metered.step_ms:.1f} ms a step" if metered is not None else ""
    verdict = "abstains" if answer.suspect is None else f"{answer.suspect}, {answer.cause}"
    return (
        label + f"{verdict}{step}, {outcome.wall_s:.0f} s, {outcome.outside_cores:.1f} other cores"
    )


def _machine() -> dict[str, object]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "Python": platform.python_version(),
        "stepscope": __version__,
    }


def _report(rows: Sequence[Row], outcomes: Sequence[Outcome], *, plot_name: str) -> dict[str, str]:
    """Write the results as files, by suffix of their name."""
    tools = sorted({row.outcome.job.tool for row in rows})
    summaries = [
        dataclasses.asdict(summarize(rows, tool, split)) for tool in tools for split in SPLITS
    ]
    return {
        ".json": _as_json(rows, outcomes, summaries=summaries),
        ".md": render(rows, outcomes, machine=_machine(), plot_name=plot_name),
        PLOT_SUFFIX: plot_reliability(collect_calibrations(rows)),
    }


def _report_traces(
    rows: Sequence[Row], outcomes: Sequence[Outcome], omitted: Sequence[tuple[Scenario, str]]
) -> dict[str, str]:
    """Write the results on traces as files, by suffix of their name."""
    groups = {
        name: {"runs": count, "scores": dataclasses.asdict(scores)}
        for name, (count, scores) in count_groups(rows).items()
    }
    reasons = {scenario.name: reason for scenario, reason in omitted}
    return {
        ".json": _as_json(rows, outcomes, groups=groups, not_in_traces=reasons),
        ".md": render_traces(rows, outcomes, omitted, machine=_machine()),
    }


def _as_json(rows: Sequence[Row], outcomes: Sequence[Outcome], **summaries: object) -> str:
    document: dict[str, Any] = {
        "machine": _machine(),
        **summaries,
        "runs": [_run_json(row) for row in rows],
        "not_scored": [
            msgspec.to_builtins(outcome) for outcome in outcomes if outcome.status != "done"
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _run_json(row: Row) -> dict[str, Any]:
    return {
        "held_out": row.scenario.label.held_out,
        "label": msgspec.to_builtins(row.scenario.label),
        "outcome": msgspec.to_builtins(row.outcome),
        "grade": dataclasses.asdict(row.grade),
        "saving_ratio": row.saving_ratio,
        "doubtful": row.doubtful,
        "lingers": row.lingers,
        "matching": dataclasses.asdict(row.matching) if row.matching is not None else None,
        "first": dataclasses.asdict(row.first) if row.first is not None else None,
    }


def _name_results(options: argparse.Namespace) -> str:
    parts = {"subset": options.subset, "traces": options.traces, "drawn": options.drawn}
    return "-".join(["diagnosis", *(part for part, is_part in parts.items() if is_part)])


def _is_complete(options: argparse.Namespace) -> bool:
    is_selection = options.only or options.scenarios or options.held_out != "include"
    is_selection = is_selection or options.each_cause_once
    return not is_selection and options.twins and not options.judge_again


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnosis",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--subset", action="store_true", help="run the quick scenarios with one seed each"
    )
    parser.add_argument("--traces", action="store_true",
                        help="diagnose traces of torch.profiler alone")  # fmt: skip
    parser.add_argument("--drawn", action="store_true",
                        help="run only drawn runs and traces; any machine will do")  # fmt: skip
    parser.add_argument("--each-cause-once", action="store_true",
                        help="run one scenario per cause, and all healthy ones")  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, help="runs per scenario; default 3, or 1 with --subset"
    )
    parser.add_argument("--scenarios", type=Path, action="append", default=[], metavar="DIR",
                        help="additional directory of scenarios; repeatable")  # fmt: skip
    parser.add_argument("--held-out", choices=("include", "exclude", "only"), default="include",
                        help="exclude them during development of the verdict")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument(
        "--traceml", type=_absolute, metavar="PROGRAM", help="path of the `traceml` command"
    )
    parser.add_argument("--traceml-seeds", type=int, nargs="+", metavar="SEED",
                        help="run TraceML with these seeds only; default all")  # fmt: skip
    parser.add_argument("--no-twins", dest="twins", action="store_false",
                        help="skip the fixed twins; predictions are then not checked")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="discard earlier outcomes")
    parser.add_argument("--again", action="store_true",
                        help="repeat runs disturbed by other processes")  # fmt: skip
    parser.add_argument("--kept", type=Path, default=LOG, help="log of the outcomes")
    parser.add_argument("--keep-runs", type=Path, metavar="DIR",
                        help="keep the run directories in DIR")  # fmt: skip
    parser.add_argument("--judge-again", action="store_true",
                        help="diagnose the runs in DIR again instead of running jobs")  # fmt: skip
    parser.add_argument("--out", type=Path, help="directory for the results")
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    main()
