"""Does the verdict find what was planted? Training jobs with labelled causes, scored.

    python -m benchmarks.diagnosis                    everything, about two hours on two cores
    python -m benchmarks.diagnosis --each-cause-once  an hour
    python -m benchmarks.diagnosis --subset           ten minutes
    python -m benchmarks.diagnosis --only NAME        one scenario
    python -m benchmarks.diagnosis --traceml PROGRAM  TraceML on the same jobs as well (pip install
                                                      traceml-ai into an environment with PyTorch)

Every scenario runs once per seed, its severities in turn, and then with its true fix applied. It
goes on where it was interrupted; --again repeats what others disturbed, --fresh everything. Nothing
else should run on the machine meanwhile. Writes benchmarks/results/diagnosis.json and .md, or
diagnosis-subset.*; of any other choice of scenarios it prints the page, and writes it only with
--out.
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
from benchmarks.diagnosis.outcomes import Job, Kept, Outcome
from benchmarks.diagnosis.page import curves, render
from benchmarks.diagnosis.plot import reliability
from benchmarks.diagnosis.results import DISTURBED_CORES, SPLITS, Row, put_together, summarise
from stepscope._version import __version__

RESULTS = Path(__file__).resolve().parents[1] / "results"
KEPT = RESULTS / "diagnosis.jsonl.tmp"


def main() -> None:
    options = _parser().parse_args()
    options.seeds = options.seeds or (1 if options.subset else 3)
    if options.judge_again and options.keep_runs is None:
        raise SystemExit("--judge-again needs --keep-runs DIR, where runs were kept")
    if options.traceml is not None and not options.traceml.exists():
        raise SystemExit(f"{options.traceml} does not exist")
    try:
        scenarios = choose(options)
    except ScenarioError as error:
        raise SystemExit(str(error)) from error
    if options.fresh:
        options.kept.unlink(missing_ok=True)
    jobs = list(planned(scenarios, options))
    if options.judge_again:
        outcomes = list(judge_all_again(jobs, options))
    else:
        outcomes = list(run_all(jobs, scenarios, options))
    rows = put_together(scenarios, outcomes)
    name = "diagnosis-subset" if options.subset else "diagnosis"
    plot_name = f"{name}-reliability.svg"
    page = render(rows, outcomes, machine=_machine(), plot_name=plot_name)
    print(page)
    place = options.out or (RESULTS if _is_whole(options) else None)
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.json").write_text(_as_json(rows, outcomes))
        (place / f"{name}.md").write_text(page)
        (place / plot_name).write_text(reliability(curves(rows)))
        print(f"written to {place / name}.json and .md", file=sys.stderr)


def choose(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios that are asked for."""
    found = catalogue.find([catalogue.HERE, *options.scenarios])
    if options.only:
        unknown = set(options.only) - {scenario.name for scenario in found}
        if unknown:
            raise ScenarioError(f"no scenario is called {', '.join(sorted(unknown))}")
        found = [scenario for scenario in found if scenario.name in options.only]
    if options.subset:
        found = [scenario for scenario in found if scenario.label.quick]
    if options.each_cause_once:
        found = catalogue.one_of_each_cause(found)
    if options.held_out != "include":
        wanted = options.held_out == "only"
        found = [scenario for scenario in found if scenario.label.held_out == wanted]
    return found


def planned(scenarios: Sequence[Scenario], options: argparse.Namespace) -> Iterator[Job]:
    """All runs, every scenario once before any twice."""
    for seed in range(options.seeds):
        for scenario in scenarios:
            severities = scenario.label.severities
            # A subset has one run of each: a middling one.
            turn = seed if options.seeds > 1 else len(severities) // 2
            job = Job(
                tool="stepscope",
                scenario=scenario.name,
                severity=severities[turn % len(severities)],
                seed=seed,
            )
            yield job
            if not scenario.label.healthy and options.twins:
                yield msgspec.structs.replace(job, fixed=True)
            if options.traceml is not None and seed in (options.traceml_seeds or [seed]):
                yield msgspec.structs.replace(job, tool="TraceML")


def run_all(
    jobs: Sequence[Job], scenarios: Sequence[Scenario], options: argparse.Namespace
) -> Iterator[Outcome]:
    """Outcomes, those that are kept without running anything."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    kept = Kept(options.kept)
    began = time.monotonic()
    for number, job in enumerate(jobs, start=1):
        scenario = by_name[job.scenario]
        outcome = kept.get(job, _depends_on(job, scenario, options))
        if outcome is None or (options.again and outcome.outside_cores > DISTURBED_CORES):
            outcome = _run(job, scenario, options)
            kept.add(outcome)
            passed = f"{(time.monotonic() - began) / 60:.1f} min"
            print(f"[{number}/{len(jobs)}, {passed}] {_line(outcome)}", file=sys.stderr, flush=True)
        yield outcome


def judge_all_again(jobs: Sequence[Job], options: argparse.Namespace) -> Iterator[Outcome]:
    """Outcomes of runs whose directories were kept, with the verdicts of now."""
    kept = Kept(options.kept)
    for job in jobs:
        outcome, run = kept.latest(job), options.keep_runs / job.directory
        if outcome is None:
            continue
        ours = job.tool == "stepscope" and run.exists()
        yield running.judge_again(outcome, run) if ours else outcome


def _run(job: Job, scenario: Scenario, options: argparse.Namespace) -> Outcome:
    if job.tool == "TraceML":
        return traceml.run_job(job, scenario, program=options.traceml)
    return running.run_job(job, scenario, keep=options.keep_runs)


def _depends_on(job: Job, scenario: Scenario, options: argparse.Namespace) -> str:
    if job.tool == "TraceML":
        return traceml.depends_on(scenario, options.traceml)
    return running.depends_on(scenario)


def _line(outcome: Outcome) -> str:
    job, answer, metered = outcome.job, outcome.answer, outcome.metered
    what = f"{job.scenario} {job.severity:g}{' fixed' if job.fixed else ''}, {job.tool}: "
    if answer is None:
        return what + f"{outcome.status}: {outcome.reason[:300]}"
    step = f", {metered.step_ms:.1f} ms a step" if metered is not None else ""
    said = "abstains" if answer.suspect is None else f"{answer.suspect}, {answer.cause}"
    return what + f"{said}{step}, {outcome.wall_s:.0f} s, others {outcome.outside_cores:.1f} cores"


def _machine() -> dict[str, object]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": len(os.sched_getaffinity(0)),
        "Python": platform.python_version(),
        "stepscope": __version__,
    }


def _as_json(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    tools = sorted({row.outcome.job.tool for row in rows})
    found: dict[str, Any] = {
        "machine": _machine(),
        "summaries": [
            dataclasses.asdict(summarise(rows, tool, split)) for tool in tools for split in SPLITS
        ],
        "runs": [_run_json(row) for row in rows],
        "not_scored": [msgspec.to_builtins(each) for each in outcomes if each.status != "done"],
    }
    return json.dumps(found, indent=1) + "\n"


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


def _is_whole(options: argparse.Namespace) -> bool:
    chosen = options.only or options.scenarios or options.held_out != "include"
    chosen = chosen or options.each_cause_once
    return not chosen and options.twins and not options.judge_again


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.diagnosis",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--subset", action="store_true", help="the quick scenarios, one seed each")
    parser.add_argument("--each-cause-once", action="store_true",
                        help="one scenario of each cause, and all healthy ones")  # fmt: skip
    parser.add_argument("--seeds", type=int, help="runs of every scenario; default 3, or 1")
    parser.add_argument("--scenarios", type=Path, action="append", default=[], metavar="DIR",
                        help="scenarios of your own beside ours; may be repeated")  # fmt: skip
    parser.add_argument("--held-out", choices=("include", "exclude", "only"), default="include",
                        help="exclude them while you work on the verdict")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument(
        "--traceml", type=_absolute, metavar="PROGRAM", help="its `traceml` command"
    )
    parser.add_argument("--traceml-seeds", type=int, nargs="+", metavar="SEED",
                        help="run it with these seeds only, of 0, 1, 2; default all")  # fmt: skip
    parser.add_argument("--no-twins", dest="twins", action="store_false",
                        help="do not run the fixed twins: no predictions are checked")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--again", action="store_true",
                        help="repeat runs beside which others used the machine")  # fmt: skip
    parser.add_argument("--kept", type=Path, default=KEPT, help="where runs are kept")
    parser.add_argument("--keep-runs", type=Path, metavar="DIR",
                        help="keep the run directories, to look at them")  # fmt: skip
    parser.add_argument("--judge-again", action="store_true",
                        help="run nothing: judge the runs in DIR by what is now")  # fmt: skip
    parser.add_argument("--out", type=Path, help="directory for the results")
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    main()
