"""Overhead of always-on recording: interleaved runs with and without it, and with peer tools.

    step      steps of about 50 ms with four phases and two workers: bare, under `stepscope run`,
              under torch.profiler, and under TraceML if it is installed (pip install traceml-ai)
    capture   the same loop under `stepscope run`, with recording switched on and off every ten
              steps within one process. On a noisy machine, only this figure resolves 1%. The cost
              of the monitor outside the job is the number of cores it uses
    pair      one annotation pair while a run is recorded, and with nothing recording
    import    `import stepscope` compared with bare Python

Every round of `step` runs all variants once, in rotating order; the ratio of a round is the median
step of the variant over that of the bare run in the same round. Reported: the median ratio over
rounds with its quartiles. Writes benchmarks/results/always_on_cost.json.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKLOAD = HERE / "workloads" / "four_phases.py"
ANNOTATION = HERE / "workloads" / "annotation.py"
BINARIES = Path(sys.executable).parent
BLOCK = 10
STEPS_ALTERNATING = 620


def variants():
    """Return a function for each variant that builds its command line for an output path."""
    python = [sys.executable, str(WORKLOAD)]
    commands = {
        "bare": lambda out: [*python, out],
        "stepscope": lambda out: [*stepscope(), *python, out],
        "torch.profiler": lambda out: [*python, out, "--profiler"],
    }
    traceml = BINARIES / "traceml"
    if traceml.exists():
        commands["TraceML"] = lambda out: [str(traceml), "run", str(WORKLOAD), "--args", out]
    return commands


def stepscope(run=None):
    run = run or tempfile.mkdtemp(prefix="stepscope-bench-") + "/run"
    return [str(BINARIES / "stepscope"), "run", "--quiet", "--out", run, "--"]


def measure(command, out):
    """Run a workload and load the result that it writes to *out*."""
    subprocess.run(command, check=True, capture_output=True, cwd=out.parent)
    return json.loads(out.read_text())


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4)
    return low, median, high


def measure_steps(rounds, work):
    """Measure the bare median step in ms per round, and the ratios per round by variant."""
    commands = variants()
    names = list(commands)
    ratios = {name: [] for name in names if name != "bare"}
    bare_ms = []
    for number in range(rounds):
        turn = number % len(names)
        medians = {}
        for name in names[turn:] + names[:turn]:
            out = work / f"{number}-{name}.json"
            durations = measure(commands[name](str(out)), out)
            medians[name] = statistics.median(durations)
        bare_ms.append(medians["bare"] / 1e6)
        for name in ratios:
            ratios[name].append(medians[name] / medians["bare"])
        done = ", ".join(f"{name} {medians[name] / 1e6:.2f} ms" for name in names)
        print(f"round {number + 1}/{rounds}: {done}", flush=True)
    return bare_ms, ratios


def measure_capture(rounds, work):
    """Measure ratios of recorded blocks over the mean of their unrecorded neighbours, and the cores
    of the monitor."""
    ratios, cores = [], []
    for number in range(rounds):
        run = tempfile.mkdtemp(prefix="stepscope-bench-", dir=work) + "/run"
        command = [*stepscope(run), sys.executable, str(WORKLOAD)]
        options = ["--steps", str(STEPS_ALTERNATING), "--alternate", str(BLOCK)]
        out = work / f"capture-{number}.json"
        steps = measure([*command, str(out), *options], out)
        blocks = [steps[i + 1 : i + BLOCK] for i in range(0, len(steps) - BLOCK + 1, BLOCK)]
        medians = [statistics.median(block) for block in blocks]
        for i in range(2, len(medians) - 1, 2):  # even blocks are recorded
            ratios.append(2 * medians[i] / (medians[i - 1] + medians[i + 1]))
        system = subprocess.run(
            [str(BINARIES / "stepscope"), "show", run, "system", "--json"],
            check=True,
            capture_output=True,
        )
        (node,) = json.loads(system.stdout)["nodes"]
        (metric,) = [m for m in node["metrics"] if m["metric"] == "own_cpu_cores"]
        cores.append(metric["statistics"]["mean"])
        print(f"capture {number + 1}/{rounds}: {len(ratios)} pairs so far", flush=True)
    return ratios, cores


def measure_import(rounds):
    """Measure the extra time of `import stepscope` over bare Python in ms, interleaved."""
    extra = []
    for _ in range(rounds):
        times = {}
        for code in ("pass", "import stepscope"):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[code] = time.perf_counter() - start
        extra.append(1e3 * (times["import stepscope"] - times["pass"]))
    return extra


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="stepscope-bench-"))
    try:
        bare_ms, ratios = measure_steps(arguments.rounds, work)
        capture, cores = measure_capture(arguments.rounds, work)
        out = work / "pair.json"
        pair_command = [sys.executable, str(ANNOTATION), str(out)]
        pairs_ns = {
            "annotation_pair_ns": measure([*stepscope(), *pair_command], out),
            "idle_annotation_pair_ns": measure(pair_command, out),
        }
        import_ms = measure_import(4 * arguments.rounds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    report(bare_ms, ratios, (capture, cores), pairs_ns, import_ms)


def report(bare_ms, ratios, captured, pairs_ns, import_ms):
    capture, cores = captured
    result = {
        "machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]},
        "rounds": len(bare_ms),
        "bare_step_ms": bare_ms,
        "step_ratio": {},
        "capture_ratio": {"quartiles": quartiles(capture), "pairs": len(capture)},
        "monitor_cores": statistics.mean(cores),
        **{name: quartiles(values) for name, values in pairs_ns.items()},
        "import_ms": quartiles(import_ms),
    }
    print(f"\nbare step: {statistics.median(bare_ms):.2f} ms (median of {len(bare_ms)} rounds)\n")
    print(f"{'':<20}{'step, over bare':>18}{'quartiles':>22}")
    for name, values in ratios.items():
        low, middle, high = quartiles(values)
        result["step_ratio"][name] = {"quartiles": [low, middle, high], "rounds": values}
        print(
            f"{name:<20}{100 * (middle - 1):>+16.2f} %"
            f"{100 * (low - 1):>+12.2f} … {100 * (high - 1):+.2f} %"
        )
    low, middle, high = quartiles(capture)
    error = 1.2533 * (high - low) / 1.349 / len(capture) ** 0.5  # of a median, normal noise
    result["capture_ratio"]["standard_error"] = error
    print(
        f"{'capture, alternating':<20}{100 * (middle - 1):>+16.2f} %"
        f"{100 * (low - 1):>+12.2f} … {100 * (high - 1):+.2f} %"
        f"   {len(capture)} pairs, standard error {100 * error:.2f} %"
    )
    print(f"{'monitor':<20}{result['monitor_cores']:>16.3f} cores")
    for name, key, unit in (
        ("annotation pair", "annotation_pair_ns", "ns"),
        ("  nothing recording", "idle_annotation_pair_ns", "ns"),
        ("import stepscope", "import_ms", "ms"),
    ):
        low, middle, high = result[key]
        print(f"{name:<20}{middle:>16.3g} {unit}{low:>12.3g} … {high:.3g} {unit}")
    out = HERE / "results" / "always_on_cost.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {out}")


if __name__ == "__main__":
    main()
