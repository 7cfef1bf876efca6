"""The story in one command: a slow training job, the verdict, the fixed job, what changed.

A recommender's epochs have become twice as long since its data moved to parquet and its
augmentations to a new library. Which of the two is it, and is it either?
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = Path("stepscope-runs")
STEPS = 240


def main():
    stamp = time.strftime("%Y%m%d-%H%M%S")
    generate = [sys.executable, str(HERE / "generate.py")]
    subprocess.run(generate, check=True)
    runs = {}
    for pipeline in ("slow", "fast"):
        run = RUNS / f"{stamp}-recommender-{pipeline}"
        train(pipeline, run)
        runs[pipeline] = payload("diagnose", run)
    compare(runs["slow"], runs["fast"])


def train(pipeline, run):
    command = ["stepscope", "run", "--out", str(run), "--"]
    command += ["python", "examples/recommender/train.py", "--pipeline", pipeline]
    command += ["--steps", str(STEPS)]
    print(f"\n$ {' '.join(command)}", flush=True)
    subprocess.run(command, check=True, cwd=HERE.parents[1], env=environment())


def environment():
    """The commands above, as a user with an activated environment would find them."""
    binaries = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}


def payload(*arguments):
    command = ["stepscope", *map(str, arguments), "--json"]
    done = subprocess.run(
        command, check=True, capture_output=True, cwd=HERE.parents[1], env=environment()
    )
    return json.loads(done.stdout)


def compare(slow, fast):
    print("\nWhat changed\n")
    print(f"  {'':<22}{'slow':>10}{'fixed':>10}")
    rows = [("step", slow["mean_step_ns"], fast["mean_step_ns"], lambda ns: f"{ns / 1e6:.0f} ms")]
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        name = f"{phase.replace('_', ' ')} of the step"
        rows.append((name, slow["phases"][phase], fast["phases"][phase], "{:.0%}".format))
    for name, before, after, show in rows:
        print(f"  {name:<22}{show(before):>10}{show(after):>10}")
    print(f"  {'verdict':<22}{slow['suspect']:>10}  ->  {fast['suspect']}")
    ratio = slow["mean_step_ns"] / fast["mean_step_ns"]
    print(f"\nA step takes {1 / ratio:.0%} of the time it took: {ratio:.1f} times as fast.")


if __name__ == "__main__":
    main()
