"""What watching costs on a GPU: whole runs of a small transformer, variants in turn.

Variants: alone; under `stepscope run` without a window; with a light and with a full window of
twenty steps; under torch.profiler with its defaults for the same twenty steps. Reported per
variant, as medians over rounds with quartiles: the step outside the window over that of the run
alone in the same round, the step inside the window over the step before it in the same process,
and the longest step from the end of the window on. Runs only where torch finds a GPU; writes
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
from always_on_cost import quartiles

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "transformer.py"
GOLDEN = HERE.parent / "tests" / "golden"
STEPSCOPE = Path(sys.executable).parent / "stepscope"
FIRST, STEPS = 80, 20
SETTLED = 30


def watched(out, *options, steps=None):
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
        "no window": watched(out, "--window", "off"),
        "light": watched(out, *window("--light")),
        "full": watched(out, *window("--full")),
        "torch.profiler": [*alone, *profiled],
    }


def seconds(command, out):
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(out.read_text())


def summarise(steps, alone):
    """Ratios of one run; libkineto may open a window some steps late, so its inside is found as
    the slowest twenty steps in a row from where it was asked for."""
    before = statistics.median(steps[SETTLED:FIRST])
    inside = max(
        statistics.median(steps[first : first + STEPS]) for first in range(FIRST, FIRST + 21)
    )
    return {
        "outside over alone": before / statistics.median(alone[SETTLED:FIRST]),
        "inside over before": inside / before,
        "longest over before": max(steps[FIRST:]) / before,
    }


def record_fixtures(work):
    """Raw windows of two steps, small enough to keep."""
    GOLDEN.mkdir(exist_ok=True)
    for depth in ("light", "full"):
        out = work / f"fixture-{depth}.json"
        options = ["--keep-raw", *window(f"--{depth}", 30, 2)]
        subprocess.run(watched(out, *options, steps=["--steps", "60"]), check=True)
        (raw,) = (work / f"{out.stem}-run" / "raw").rglob("*.json")
        (GOLDEN / f"gpu_{depth}.json.gz").write_bytes(gzip.compress(raw.read_bytes(), 9))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fixtures", action="store_true")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here: nothing can be measured.")
    found = {}
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        for number in range(given.rounds):
            round_ = {}
            for name in variants(Path()):
                out = Path(directory, f"{number}-{name.replace(' ', '-')}.json")
                round_[name] = seconds(variants(out)[name], out)
            for name, steps in round_.items():
                for figure, ratio in summarise(steps, round_["alone"]).items():
                    found.setdefault(name, {}).setdefault(figure, []).append(ratio)
        if given.fixtures:
            record_fixtures(Path(directory))
    results = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": given.rounds,
        "ratios": {
            name: {figure: quartiles(values) for figure, values in figures.items()}
            for name, figures in found.items()
        },
    }
    (HERE / "results" / "gpu_overhead.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
