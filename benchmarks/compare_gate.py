"""Error rates of the gate of `stepscope compare`, with identical and with slower programs.

A small job (workloads/gated.py) is recorded at the same time as an identical job, or as one with
more blocks, whose step takes about an eighth longer. Each job has its own core; they swap cores
from pair to pair, so that slow cores affect both. A gate has several pairs and evaluates
`step_time>+5%` and the same condition on the median: the identical program should pass and the
slower one fail. The first pair of each gate is also evaluated alone. Writes
benchmarks/results/compare_gate.json.

    python -m benchmarks.compare_gate [--repeats 20] [--runs 14] [--steps 360] [--keep DIR]

With --keep, runs are kept, and existing pairs are not recorded again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "gated.py"
RESULT = HERE / "results" / "compare_gate.json"
STEPSCOPE = [sys.executable, "-m", "stepscope"]
CONDITIONS = {"mean": "step_time>+5%", "p50": "step_time_p50>+5%"}
"""Conditions by the figure that they test."""
MORE_BLOCKS = 3
"""Blocks that the slower program adds: an eighth of the model, and about as much of the step."""
SIDES = ("base", "other")
KINDS = {"identical": 0, "slower": MORE_BLOCKS}
ENVIRONMENT = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Huge pages where available: with small pages, their placement makes a process faster or slower
for its whole lifetime."""
CORES = sorted(os.sched_getaffinity(0))[:2]


def record_pair(gate, number, steps, extra_blocks):
    """Record one run of each program at the same time; keep both or neither."""
    part = gate / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    jobs = []
    for side, repeat in enumerate((0, extra_blocks)):
        core = CORES[(number + side) % 2]
        job = [sys.executable, str(WORKLOAD), "--steps", str(steps), "--repeat", str(repeat)]
        options = ["--quiet", "--no-rules", "--window", "off", "--out", str(part / SIDES[side])]
        command = ["taskset", "-c", str(core), *STEPSCOPE, "run", *options, "--", *job]
        with (part / f"{SIDES[side]}.log").open("w") as log:
            jobs.append(
                subprocess.Popen(command, stdout=log, stderr=log, cwd=HERE, env=ENVIRONMENT)
            )
    if [job.wait() for job in jobs] != [0, 0]:
        raise SystemExit(f"a job failed, see the logs in {part}")
    for side in SIDES:
        run = gate / side / f"{number:02d}"
        shutil.rmtree(run, ignore_errors=True)
        run.parent.mkdir(exist_ok=True)
        (part / side).rename(run)
    shutil.rmtree(part)


def record(gate, runs, steps, extra_blocks):
    """Record the pairs of a gate that do not exist yet."""
    for number in range(runs):
        if not (gate / SIDES[1] / f"{number:02d}").exists():
            record_pair(gate, number, steps, extra_blocks)


def evaluate_gate(base, runs):
    """Run the gate and return its outcome for each figure, with the numbers behind it."""
    options = [word for text in CONDITIONS.values() for word in ("--fail-if", text)]
    result = subprocess.run(
        [*STEPSCOPE, "compare", str(base), str(runs), *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    payload = json.loads(result.stdout)
    outcomes = {c["condition"]: c["outcome"] for c in payload["gate"]["conditions"]}
    return {
        figure["name"]: {
            "outcome": outcomes[CONDITIONS[figure["name"]]],
            "change_ratio": figure["estimate_ns"] / figure["base_ns"],
            "noise_ratio": figure["noise_ns"] / figure["base_ns"],
        }
        for figure in payload["steps"]["figures"]
        if figure["name"] in CONDITIONS
    }


def measure(repeats, runs, steps, directory):
    """Evaluate all gates; outcomes are by number of runs and kind of program."""
    gates = [
        (kind, directory / f"{kind}-{number:02d}") for number in range(repeats) for kind in KINDS
    ]
    for kind, gate in gates:
        record(gate, runs, steps, KINDS[kind])
    verdicts_by_count = {count: {kind: [] for kind in KINDS} for count in (runs, 1)}
    for kind, gate in gates:
        for count, run_name in {runs: "", 1: "00"}.items():
            result = evaluate_gate(*(gate / side / run_name for side in SIDES))
            verdicts_by_count[count][kind].append(result)
            summary = ", ".join(
                f"{name} {f['change_ratio']:+.1%} ± {f['noise_ratio']:.1%}: {f['outcome']}"
                for name, f in result.items()
            )
            print(f"{gate.name} {count} runs: {summary}", flush=True)
    return verdicts_by_count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--keep", type=Path, help="directory in which to keep the runs")
    arguments = parser.parse_args()
    if len(CORES) < 2:
        parser.error("two cores are required, one per program")
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as temporary:
        directory = Path(temporary) if arguments.keep is None else arguments.keep.resolve()
        verdicts = measure(arguments.repeats, arguments.runs, arguments.steps, directory)
    stopped = {
        count: {
            condition: {
                kind: sum(result[figure]["outcome"] == "failed" for result in results)
                for kind, results in kinds.items()
            }
            for figure, condition in CONDITIONS.items()
        }
        for count, kinds in verdicts.items()
    }
    for count, conditions in stopped.items():
        for condition, kinds in conditions.items():
            for kind, failed in kinds.items():
                share = f"{failed} of {len(verdicts[count][kind])} gates"
                print(f"{count} runs each: {condition} failed {share} of the {kind} program")
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "repeats": arguments.repeats,
        "steps": arguments.steps,
        "more_blocks": MORE_BLOCKS,
        "stopped_by_runs": stopped,
        "gates_by_runs": verdicts,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
