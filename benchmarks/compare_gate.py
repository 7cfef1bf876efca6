"""How often the gate of `stepscope compare` is right: identical runs, and runs with a slowdown.

One run of a small job (workloads/gated.py) is the base. Then, in turn, the same job again, and the
same with every step a tenth longer; each is compared with the base under `step_time>+5%`, and under
the same condition on the median. The gate should let the identical runs pass and stop the slower
ones. Writes benchmarks/results/compare_gate.json.

    python benchmarks/compare_gate.py [--repeats 20] [--steps 1500]
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


def record(run, steps, slower=0.0):
    job = [sys.executable, str(WORKLOAD), "--steps", str(steps), "--slower", str(slower)]
    options = ["--quiet", "--no-rules", "--window", "off", "--out", str(run)]
    subprocess.run(
        [*STEPSCOPE, "run", *options, "--", *job], check=True, capture_output=True, cwd=run.parent
    )


def judged(base, run):
    """What the gate says of each figure, with the numbers it says it by."""
    asked = [word for each in CONDITIONS.values() for word in ("--fail-if", each)]
    done = subprocess.run(
        [*STEPSCOPE, "compare", str(base), str(run), *asked, "--json"],
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


def measure(repeats, steps, work):
    base = work / "base"
    record(base, steps)
    found = {"identical": [], "slower": []}
    for number in range(repeats):
        for kind, slower in (("identical", 0.0), ("slower", SLOWER)):
            run = work / f"{kind}-{number}"
            record(run, steps, slower)
            result = judged(base, run)
            found[kind].append(result)
            shutil.rmtree(run)
            said = ", ".join(
                f"{name} {each['change_ratio']:+.1%}, noise floor {each['noise_ratio']:.1%}: "
                f"{each['outcome']}"
                for name, each in result.items()
            )
            print(f"{number + 1}/{repeats} {kind:<9} {said}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    try:
        found = measure(arguments.repeats, arguments.steps, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stopped = {
        condition: {
            kind: sum(each[figure]["outcome"] == "failed" for each in results)
            for kind, results in found.items()
        }
        for figure, condition in CONDITIONS.items()
    }
    for condition, counts in stopped.items():
        for kind, count in counts.items():
            print(f"{condition} stopped {count} of {arguments.repeats} {kind} runs")
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "stopped": stopped,
        "repeats": arguments.repeats,
        "slower_ratio": SLOWER,
        "steps": arguments.steps,
        **found,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
