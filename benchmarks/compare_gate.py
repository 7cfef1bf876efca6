"""How often the gate of `stepscope compare` is right: identical programs, and slower ones.

A small job (workloads/gated.py) and the same job with every step a tenth longer are run in turn,
several runs of each to a gate. Each gate compares, under `step_time>+5%` and under the same on the
median, the runs of this round with those of the plain job in the round before: the identical
program should pass and the slower one fail. The same is judged of the first run of each alone.
Writes benchmarks/results/compare_gate.json.

    python benchmarks/compare_gate.py [--repeats 20] [--runs 5] [--steps 500]
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
"""By the figure of the steps that each is about."""
SLOWER = 0.1
KINDS = {"identical": 0.0, "slower": SLOWER}


def record(run, steps, slower=0.0):
    job = [sys.executable, str(WORKLOAD), "--steps", str(steps), "--slower", str(slower)]
    options = ["--quiet", "--no-rules", "--window", "off", "--out", str(run)]
    subprocess.run(
        [*STEPSCOPE, "run", *options, "--", *job], check=True, capture_output=True, cwd=HERE
    )


def judged(base, runs):
    """What the gate says of each figure, with the numbers it says it by."""
    asked = [word for each in CONDITIONS.values() for word in ("--fail-if", each)]
    done = subprocess.run(
        [*STEPSCOPE, "compare", str(base), str(runs), *asked, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    outcomes = {each["condition"]: each["outcome"] for each in found["gate"]["conditions"]}
    return {
        figure["name"]: {
            "outcome": outcomes[CONDITIONS[figure["name"]]],
            "change_ratio": figure["change_ratio"],
            "noise_ratio": figure["noise_ns"] / figure["base_ns"],
        }
        for figure in found["steps"]["figures"]
        if figure["name"] in CONDITIONS
    }


def measure(repeats, runs, steps, work):
    """By how many runs a gate had and kind: what each gate said."""
    found = {count: {kind: [] for kind in KINDS} for count in (runs, 1)}
    base = work / "base"
    for number in range(runs):
        record(base / str(number), steps)
    for number in range(repeats):
        for each in range(runs):
            for kind, slower in KINDS.items():
                record(work / kind / str(each), steps, slower)
        for kind in KINDS:
            for count, place in ((runs, Path()), (1, Path("0"))):
                result = judged(base / place, work / kind / place)
                found[count][kind].append(result)
                said = ", ".join(
                    f"{name} {of['change_ratio']:+.1%} ± {of['noise_ratio']:.1%}: {of['outcome']}"
                    for name, of in result.items()
                )
                print(f"{number + 1}/{repeats} {kind:<9} {count} runs: {said}", flush=True)
        shutil.rmtree(base)
        (work / "identical").rename(base)
        shutil.rmtree(work / "slower")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    try:
        found = measure(arguments.repeats, arguments.runs, arguments.steps, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stopped = {
        count: {
            condition: {
                kind: sum(each[figure]["outcome"] == "failed" for each in results)
                for kind, results in kinds.items()
            }
            for figure, condition in CONDITIONS.items()
        }
        for count, kinds in found.items()
    }
    for count, conditions in stopped.items():
        for condition, kinds in conditions.items():
            for kind, failed in kinds.items():
                gates = f"{failed} of {arguments.repeats} gates"
                print(f"{count} runs of each: {condition} stopped {gates} of the {kind} program")
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "repeats": arguments.repeats,
        "steps": arguments.steps,
        "slower_ratio": SLOWER,
        "stopped_by_runs": stopped,
        "gates_by_runs": found,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
