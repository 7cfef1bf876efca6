"""Cost of importing traces: complete processes, compared with Python's JSON module.

Two kinds of traces of a million events each, made of recordings in ../shared/traces by its tool:

    training   data-parallel training on V100: operators, calls, kernels, memory
    stacks     H100, with Python functions (half of the events), shapes and memory

What is measured of each:

    import     `stepscope import FILE`: decoding, linking, levels of detail, Parquet on disk
    json.load  Python's json module, reading the same file
    gzip       the same import from the file compressed with gzip -6
    ranks      eight such files at once, compared with eight times one file on one core
    large      a file five times as long, with --large: time and memory
    python     the same import without the compiled scanner
    HTA        HolisticTraceAnalysis loading the file and computing its temporal, idle-time and
               kernel breakdowns, overlap, launch statistics and queue lengths, if --hta is the path
               of a Python that has it (pip install HolisticTraceAnalysis "pandas<3")

Every round runs all variants once, in rotating order; ratios are computed within a round. Reported:
the median with quartiles. Memory is measured in separate runs. Also measured: `stepscope show` on
the imported run.

    python -m benchmarks.import_trace [--large] [--hta PYTHON] [--rounds N] [--kind KIND]

CPU time and memory are those of all processes of a command (measuring.py). Writes
benchmarks/results/import_trace.json.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import OURS, measure, quartiles, use_bytecode

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1] / "shared"
RECIPES = {"training": ("ddp_2ranks_memory.v100", 5), "stacks": ("bert_small.h100", 400)}
"""Recording and its number of copies in a million events, by kind."""
LARGE_FACTOR = 5
LOAD_JSON = "import json, sys; json.load(open(sys.argv[1]))"
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
found.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
found.get_queue_length_summary(ranks=[0])
"""
VIEWS = (
    "gpu-time",
    "idle",
    "launches",
    "steps",
    "gpu-metrics",
    "operators",
    "kernels",
    "memory",
    "modules",
    "activity",
    "annotations",
    "roofline",
)


def import_command(files, out, one_core=False, build=OURS):
    """Return the command that imports files into a new run."""
    prefix = ["taskset", "-c", "0"] if one_core else []
    return [*prefix, *build.command("import", *files, "-o", out)]


def measure_fresh(command, out, *, samples_memory=False, **variables):
    """Measure a command; its run directory is removed before."""
    shutil.rmtree(out, ignore_errors=True)
    environment = {**OURS.environment, **variables}
    return measure(command, environment=environment, samples_memory=samples_memory)


def measure_rounds(rounds, variants):
    """Measure the cost of each variant per round."""
    costs = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            costs[name].append(cost := variants[name]())
            print(f"round {number}: {name} {cost.seconds:.2f} s, CPU {cost.cpu_s:.2f} s")
    return costs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=RECIPES, action="append", help="default: all")
    parser.add_argument("--copies", type=int, help="instead of those of a million events")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--hta")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    target = HERE / "results" / "import_trace.json"
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        use_bytecode(Path(directory))
        results = {
            kind: measure_kind(kind, arguments, Path(directory))
            for kind in arguments.kind or RECIPES
        }
    target.write_text(json.dumps(results, indent=2) + "\n")
    for kind, measured in results.items():
        report(kind, measured)


def write_trace(kind, copies, path):
    """Write a trace of many copies of a recording."""
    name, _ = RECIPES[kind]
    source = SHARED / "traces" / f"{name}.json.gz"
    if not source.exists():
        raise SystemExit(f"{source} is missing: the recordings are not part of stepscope.")
    tool = SHARED / "tools" / "make_big_trace.py"
    command = [sys.executable, str(tool), str(source), str(path), "--copies", str(copies)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def measure_kind(kind, arguments, work):
    """Measure all variants on traces of one kind."""
    out = work / "run"
    copies = arguments.copies or RECIPES[kind][1]
    file = write_trace(kind, copies, work / f"{kind}.json")
    large = None
    if arguments.large:
        large = write_trace(kind, LARGE_FACTOR * copies, work / f"{kind}-large.json")
    packed = work / f"{kind}.json.gz"
    with file.open("rb") as source, gzip.open(packed, "wb", 6) as target:
        shutil.copyfileobj(source, target)
    ranks = [work / f"{kind}-rank{number}.json" for number in range(8)]
    for path in ranks:
        path.symlink_to(file)
    variants = {
        "import": lambda: measure_fresh(import_command([file], out), out),
        "json.load": lambda: measure([sys.executable, "-c", LOAD_JSON, str(file)]),
        "python": lambda: measure_fresh(
            import_command([file], out), out, STEPSCOPE_SCANNER="python"
        ),
        "gzip": lambda: measure_fresh(import_command([packed], out), out),
        "one core": lambda: measure_fresh(import_command([file], out, one_core=True), out),
        "ranks": lambda: measure_fresh(import_command(ranks, out), out),
    }
    if large:
        variants["large"] = lambda: measure_fresh(import_command([large], out), out)
    for name in ("import", "json.load"):
        variants[name]()
    costs = measure_rounds(arguments.rounds, variants)
    if arguments.hta:
        command = [arguments.hta, "-c", HTA, str(file)]
        costs |= measure_rounds(1, {"HTA": lambda: measure(command)})
    results = {
        "file_bytes": file.stat().st_size,
        "cores": len(os.sched_getaffinity(0)),
        "seconds": {name: describe([c.seconds for c in v]) for name, v in costs.items()},
        "cpu_seconds": {name: describe([c.cpu_s for c in v]) for name, v in costs.items()},
        "ratios": {name: describe(values) for name, values in ratios_of(costs).items()},
        "peak_bytes": {"import": measure_peak_bytes(import_command([file], out), out)},
    }
    results["run_bytes"] = sum(p.stat().st_size for p in out.rglob("*.parquet"))
    if large:
        results["peak_bytes"]["large"] = measure_peak_bytes(import_command([large], out), out)
    results["show_seconds"] = {view: describe(measure_show(out, view)) for view in VIEWS}
    for path in work.glob(f"{kind}*"):
        path.unlink()
    return results


def describe(values):
    return quartiles(values)._asdict()


def measure_peak_bytes(command, out):
    return 1e6 * measure_fresh(command, out, samples_memory=True).memory_mb


def measure_show(out, view):
    """Measure the wall time of a view; the first time is warm-up."""
    command = OURS.command("show", out, view, "--json")
    return [measure(command).seconds for _ in range(6)][1:]


def ratios_of(costs):
    """Compute the ratios of wall and CPU times within each round."""
    wall = {name: [cost.seconds for cost in values] for name, values in costs.items()}
    cpu = {name: [cost.cpu_s for cost in values] for name, values in costs.items()}
    cores = len(os.sched_getaffinity(0))
    ratios = {
        "import / json.load": divide(wall["import"], wall["json.load"]),
        "import / json.load, CPU": divide(cpu["import"], cpu["json.load"]),
        "python / json.load": divide(wall["python"], wall["json.load"]),
        "gzip / import": divide(wall["gzip"], wall["import"]),
        "8 ranks / (8 x one rank on one core / cores)": [
            ranks_s * cores / (8 * rank_s)
            for ranks_s, rank_s in zip(wall["ranks"], wall["one core"], strict=True)
        ],
    }
    if "large" in wall:
        ratios["large / import"] = divide(wall["large"], wall["import"])
    if "HTA" in wall:
        ratios["import / HTA"] = [statistics.median(wall["import"]) / wall["HTA"][0]]
        ratios["8 ranks / (8 x HTA)"] = [statistics.median(wall["ranks"]) / (8 * wall["HTA"][0])]
    return ratios


def divide(values, bases):
    return [value / base for value, base in zip(values, bases, strict=True)]


def report(kind, results):
    groups = (("seconds", "s"), ("cpu_seconds", "s"), ("ratios", ""), ("show_seconds", "s"))
    for group, unit in groups:
        for name, values in results[group].items():
            spread = f"({values['low']:.2f} … {values['high']:.2f})"
            print(f"{kind:9} {group:13} {name:45} {values['median']:7.2f} {unit} {spread}")
    for name, peak in results["peak_bytes"].items():
        print(f"{kind:9} {'memory':13} {name:45} {peak / 1e6:7.0f} MB")


if __name__ == "__main__":
    main()
