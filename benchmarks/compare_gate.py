"""How often the gate of `stepscope compare` is right: identical programs, and slower ones.

A small job (workloads/gated.py) is recorded at the same time as itself, or as the same job with
more blocks, which make its step about an eighth longer. Each has a core of its own, which they
exchange from pair to pair: what both are slowed by does not tell them apart. A gate has several
pairs, and judges them under `step_time>+5%` and under the same on the median: the identical program
should pass and the slower one fail. The same is judged of the first pair of each gate alone. Writes
benchmarks/results/compare_gate.json.

    python benchmarks/compare_gate.py [--repeats 20] [--runs 14] [--steps 360] [--keep DIR]

With --keep runs are kept, and pairs that are there already are not recorded again.
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
MORE_BLOCKS = 3
"""Called by the slower program: an eighth of the model, and about as much of the step."""
SIDES = ("base", "other")
KINDS = {"identical": 0, "slower": MORE_BLOCKS}
ENVIRONMENT = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Memory in huge pages where they are to be had: which small ones a process gets makes it slower or
faster for all of its life."""
CORES = sorted(os.sched_getaffinity(0))[:2]


def record_pair(place, number, steps, more):
    """One run of each program at the same time, both there whole or not at all."""
    part = place / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    jobs = []
    for side, repeat in enumerate((0, more)):
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
        run = place / side / f"{number:02d}"
        shutil.rmtree(run, ignore_errors=True)
        run.parent.mkdir(exist_ok=True)
        (part / side).rename(run)
    shutil.rmtree(part)


def record(gate, runs, steps, more):
    """What of a gate is not there yet."""
    for number in range(runs):
        if not (gate / SIDES[1] / f"{number:02d}").exists():
            record_pair(gate, number, steps, more)


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
            "change_ratio": figure["estimate_ns"] / figure["base_ns"],
            "noise_ratio": figure["noise_ns"] / figure["base_ns"],
        }
        for figure in found["steps"]["figures"]
        if figure["name"] in CONDITIONS
    }


def measure(repeats, runs, steps, kept):
    """By how many runs a gate had and kind of program: what each gate said."""
    gates = [(kind, kept / f"{kind}-{number:02d}") for number in range(repeats) for kind in KINDS]
    for kind, gate in gates:
        record(gate, runs, steps, KINDS[kind])
    found = {count: {kind: [] for kind in KINDS} for count in (runs, 1)}
    for kind, gate in gates:
        for count, place in {runs: "", 1: "00"}.items():
            result = judged(*(gate / side / place for side in SIDES))
            found[count][kind].append(result)
            said = ", ".join(
                f"{name} {of['change_ratio']:+.1%} ± {of['noise_ratio']:.1%}: {of['outcome']}"
                for name, of in result.items()
            )
            print(f"{gate.name} {count} runs: {said}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--keep", type=Path, help="where to keep the runs")
    arguments = parser.parse_args()
    if len(CORES) < 2:
        parser.error("two cores are needed, one for each of the programs")
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as temporary:
        kept = Path(temporary) if arguments.keep is None else arguments.keep.resolve()
        found = measure(arguments.repeats, arguments.runs, arguments.steps, kept)
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
                of = f"{failed} of {len(found[count][kind])} gates"
                print(f"{count} runs of each: {condition} stopped {of} of the {kind} program")
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "repeats": arguments.repeats,
        "steps": arguments.steps,
        "more_blocks": MORE_BLOCKS,
        "stopped_by_runs": stopped,
        "gates_by_runs": found,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
