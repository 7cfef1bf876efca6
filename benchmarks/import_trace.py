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
the median with quartiles. Memory is the largest sum of the proportional set sizes of all processes
of the command, sampled every 20 ms in separate runs. Also measured: `stepscope show` on the
imported run.

    python benchmarks/import_trace.py [--large] [--hta PYTHON] [--rounds N] [--kind KIND]

CPU time is that of all processes of a command; it says more than time on a machine that does other
work, too. Writes benchmarks/results/import_trace.json.
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1] / "shared"
RECIPES = {"training": ("ddp_2ranks_memory.v100", 5), "stacks": ("bert_small.h100", 400)}
"""Recording and its number of copies in a million events, by kind."""
LARGE_FACTOR = 5
STEPSCOPE = [str(Path(sys.executable).parent / "stepscope")]
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


ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""Environment of all commands. An installed package has bytecode; here a warm-up run writes it to a
temporary directory."""


def import_command(files, out, one_core=False):
    """Return the command that imports files into a new run."""
    prefix = ["taskset", "-c", "0"] if one_core else []
    return [*prefix, *STEPSCOPE, "import", *map(str, files), "-o", str(out)]


def measure_seconds(command, out=None, environment=None):
    """Measure wall and CPU time of a command; its run directory is removed before and after."""
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    environment = {**ENVIRONMENT, **(environment or {})}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    elapsed = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_peak_bytes(command, out):
    """Measure the largest sum of proportional set sizes of a command's processes."""
    shutil.rmtree(out, ignore_errors=True)
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(proportional_bytes, tree(process.pid))))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{command} failed with {process.returncode}")
    return peak


def tree(pid):
    """Yield a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    yield pid
    for child in children:
        yield from tree(int(child))


def proportional_bytes(pid):
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": middle, "low": low, "high": high}


def measure(rounds, variants):
    """Measure wall and CPU seconds of each variant per round."""
    durations = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            durations[name].append(variants[name]())
            wall, cpu = durations[name][-1]
            print(f"round {number}: {name} {wall:.2f} s, CPU {cpu:.2f} s", file=sys.stderr)
    return durations


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
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = f"{directory}/bytecode"
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
        "import": lambda: measure_seconds(import_command([file], out), out),
        "json.load": lambda: measure_seconds([sys.executable, "-c", LOAD_JSON, str(file)]),
        "python": lambda: measure_seconds(
            import_command([file], out), out, {"STEPSCOPE_SCANNER": "python"}
        ),
        "gzip": lambda: measure_seconds(import_command([packed], out), out),
        "one core": lambda: measure_seconds(import_command([file], out, one_core=True), out),
        "ranks": lambda: measure_seconds(import_command(ranks, out), out),
    }
    if large:
        variants["large"] = lambda: measure_seconds(import_command([large], out), out)
    for name in ("import", "json.load"):
        variants[name]()
    durations = measure(arguments.rounds, variants)
    if arguments.hta:
        command = [arguments.hta, "-c", HTA, str(file)]
        durations |= measure(1, {"HTA": lambda: measure_seconds(command)})
    results = {
        "file_bytes": file.stat().st_size,
        "cores": len(os.sched_getaffinity(0)),
        "seconds": {n: quartiles([wall for wall, _ in v]) for n, v in durations.items()},
        "cpu_seconds": {n: quartiles([cpu for _, cpu in v]) for n, v in durations.items()},
        "ratios": {name: quartiles(values) for name, values in ratios_of(durations).items()},
        "peak_bytes": {"import": measure_peak_bytes(import_command([file], out), out)},
    }
    results["run_bytes"] = sum(p.stat().st_size for p in out.rglob("*.parquet"))
    if large:
        results["peak_bytes"]["large"] = measure_peak_bytes(import_command([large], out), out)
    results["show_seconds"] = {view: quartiles(measure_show(out, view)) for view in VIEWS}
    for path in work.glob(f"{kind}*"):
        path.unlink()
    return results


def measure_show(out, view):
    """Measure the wall time of a view; the first time is warm-up."""
    command = [*STEPSCOPE, "show", str(out), view, "--json"]
    return [measure_seconds(command)[0] for _ in range(6)][1:]


def ratios_of(durations):
    """Compute the ratios of wall and CPU times within each round."""
    wall = {name: [seconds for seconds, _ in values] for name, values in durations.items()}
    cpu = {name: [seconds for _, seconds in values] for name, values in durations.items()}
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
