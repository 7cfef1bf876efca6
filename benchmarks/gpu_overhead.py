"""Overhead of recording on a GPU: complete runs of a small transformer, variants interleaved.

Variants: bare; under `stepscope run` without a window; with a light and with a full window of
twenty steps; under torch.profiler with its defaults for the same twenty steps. Reported per
variant, as medians over rounds with quartiles: the step outside the window over that of the bare
run of the same round, the step inside the window over the step before it in the same process, and
the longest step from the end of the window on. Requires a GPU. Writes
benchmarks/results/gpu_overhead.json, and with --fixtures the raw windows of short runs to
tests/golden/.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.measuring import quartiles

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "transformer.py"
GOLDEN = HERE.parent / "tests" / "golden"
STEPSCOPE = Path(sys.executable).parent / "stepscope"
FIRST, STEPS = 80, 20
WARM_UP_STEPS = 30


def stepscope_command(out, *options, steps=None):
    run = out.parent / f"{out.stem}-run"
    command = [str(STEPSCOPE), "run", "--quiet", "--out", str(run), *options, "--"]
    return [*command, sys.executable, str(WORKLOAD), str(out), *(steps or [])]


def window(depth, first=FIRST, count=STEPS):
    return ["--window", "asked", "--start-step", str(first), "--num-steps", str(count), depth]


def variants(out):
    alone = [sys.executable, str(WORKLOAD), str(out)]
    profiled = ["--profile-from", str(FIRST), "--profile-steps", str(STEPS)]
    return {
        "alone": alone,
        "no window": stepscope_command(out, "--window", "off"),
        "light": stepscope_command(out, *window("--light")),
        "full": stepscope_command(out, *window("--full")),
        "torch.profiler": [*alone, *profiled],
    }


def measure(command, out):
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(out.read_text())


def summarize(steps, alone):
    """Compute the ratios of one run.

    libkineto may open a window some steps late, so the window is taken to be the slowest twenty
    consecutive steps after the requested one.
    """
    before = statistics.median(steps[WARM_UP_STEPS:FIRST])
    inside = max(
        statistics.median(steps[first : first + STEPS]) for first in range(FIRST, FIRST + 21)
    )
    return {
        "outside over alone": before / statistics.median(alone[WARM_UP_STEPS:FIRST]),
        "inside over before": inside / before,
        "longest over before": max(steps[FIRST:]) / before,
    }


def record_fixtures(work):
    """Record raw windows of two steps, small enough for the repository."""
    GOLDEN.mkdir(exist_ok=True)
    for depth in ("light", "full"):
        out = work / f"fixture-{depth}.json"
        options = ["--keep-raw", *window(f"--{depth}", 30, 2)]
        subprocess.run(stepscope_command(out, *options, steps=["--steps", "60"]), check=True)
        (raw,) = (work / f"{out.stem}-run" / "raw").rglob("*.json")
        (GOLDEN / f"gpu_{depth}.json.gz").write_bytes(gzip.compress(raw.read_bytes(), 9))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fixtures", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU on this machine.")
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        for number in range(arguments.rounds):
            round_ = {}
            for name in variants(Path()):
                out = Path(directory, f"{number}-{name.replace(' ', '-')}.json")
                round_[name] = measure(variants(out)[name], out)
            for name, steps in round_.items():
                for figure, ratio in summarize(steps, round_["alone"]).items():
                    ratios.setdefault(name, {}).setdefault(figure, []).append(ratio)
        if arguments.fixtures:
            record_fixtures(Path(directory))
    results = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": arguments.rounds,
        "ratios": {
            name: {figure: quartiles(values) for figure, values in figures.items()}
            for name, figures in ratios.items()
        },
    }
    (HERE / "results" / "gpu_overhead.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
