"""Cost of always-on recording within a job, for rows of `python -m benchmarks.laboratory`.

Each function runs one job under a build of stepscope, with the workload of that build.
"""

import json
import statistics
import sys

from benchmarks.measuring import OURS, measure

BLOCK = 10
STEPS_ALTERNATING = 620


def find_workload(name, build):
    return build.root / "benchmarks" / "workloads" / f"{name}.py"


def run_workload(command, out, build=OURS):
    """Run a workload and load the result that it writes to *out*."""
    measure(command, directory=out.parent, environment=build.environment)
    return json.loads(out.read_text())


def measure_capture(work, build=OURS):
    """Measure the ratio of a recorded step to an unrecorded one.

    Recording is switched on and off every ten steps of about 50 ms. Blocks that are recorded are
    compared with the mean of their neighbours, which are not: no other figure resolves 1% on a
    noisy machine.
    """
    out = work / "capture.json"
    command = [*build.record(work / "run"), sys.executable, find_workload("four_phases", build)]
    options = ["--steps", str(STEPS_ALTERNATING), "--alternate", str(BLOCK)]
    steps = run_workload([*command, str(out), *options], out, build)
    blocks = [steps[i + 1 : i + BLOCK] for i in range(0, len(steps) - BLOCK + 1, BLOCK)]
    medians = [statistics.median(block) for block in blocks]
    return statistics.median(
        2 * medians[i] / (medians[i - 1] + medians[i + 1])
        for i in range(2, len(medians) - 1, 2)  # even blocks are recorded
    )


def measure_pair_ns(work, build=OURS, *, recorded):
    """Measure nanoseconds of one annotation, in a recorded run or with nothing recording."""
    out = work / "pair.json"
    command = [sys.executable, str(find_workload("annotation", build)), str(out)]
    prefix = build.record(work / "run") if recorded else []
    return statistics.median(run_workload([*prefix, *command], out, build))
