"""Cost of importing a trace: complete processes, compared with Python's JSON module.

    import     `stepscope import FILE`: decoding, linking, levels of detail, Parquet on disk
    json.load  Python's json module, reading the same file
    gzip       the same import from the file compressed with gzip -6
    ranks      eight such files at once, compared with eight times one file on one core
    large      a file several times as long: time and memory
    HTA        HolisticTraceAnalysis loading the file and computing its temporal, idle-time and
               kernel breakdowns, overlap, launch statistics and queue lengths, if --hta is the path
               of a Python that has it (pip install HolisticTraceAnalysis "pandas<3")

Every round runs all variants once, in rotating order; ratios are computed within a round. Reported:
the median with quartiles. Memory is the largest sum of the proportional set sizes of all processes
of the command, sampled every 20 ms in separate runs. Also measured: `stepscope show` on the
imported run.

    python benchmarks/import_trace.py FILE.json [--large LARGE.json] [--hta PYTHON] [--rounds N]

Writes benchmarks/results/import_trace.json.
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
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
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


def measure_seconds(command, out=None):
    """Measure the wall time of a process; its run directory is removed before and after."""
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    elapsed = time.perf_counter() - start
    if out is not None:
        shutil.rmtree(out, ignore_errors=True)
    return elapsed


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
    """Measure the seconds of each variant per round."""
    durations = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            durations[name].append(variants[name]())
            print(f"round {number}: {name} {durations[name][-1]:.2f} s", file=sys.stderr)
    return durations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--large", type=Path)
    parser.add_argument("--hta")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        results = measure_all(arguments, Path(directory))
    target = HERE / "results" / "import_trace.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    report(results)


def measure_all(arguments, work):
    out = work / "run"
    ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")
    packed = work / "packed.json.gz"
    with arguments.file.open("rb") as source, gzip.open(packed, "wb", 6) as target:
        shutil.copyfileobj(source, target)
    ranks = [work / f"rank{number}.json" for number in range(8)]
    for path in ranks:
        path.symlink_to(arguments.file.resolve())
    variants = {
        "import": lambda: measure_seconds(import_command([arguments.file], out), out),
        "json.load": lambda: measure_seconds(
            [sys.executable, "-c", LOAD_JSON, str(arguments.file)]
        ),
        "gzip": lambda: measure_seconds(import_command([packed], out), out),
        "one core": lambda: measure_seconds(
            import_command([arguments.file], out, one_core=True), out
        ),
        "ranks": lambda: measure_seconds(import_command(ranks, out), out),
    }
    if arguments.large:
        variants["large"] = lambda: measure_seconds(import_command([arguments.large], out), out)
    for name in ("import", "json.load"):
        variants[name]()
    durations = measure(arguments.rounds, variants)
    if arguments.hta:
        command = [arguments.hta, "-c", HTA, str(arguments.file)]
        durations |= measure(1, {"HTA": lambda: measure_seconds(command)})
    cores = len(os.sched_getaffinity(0))
    base = durations["import"]
    ratios = {
        "import / json.load": divide(base, durations["json.load"]),
        "gzip / import": divide(durations["gzip"], base),
        "8 ranks / (8 x one rank on one core / cores)": [
            ranks_s * cores / (8 * rank_s)
            for ranks_s, rank_s in zip(durations["ranks"], durations["one core"], strict=True)
        ],
    }
    if arguments.large:
        ratios["large / import"] = divide(durations["large"], base)
    if arguments.hta:
        ratios["import / HTA"] = [statistics.median(base) / durations["HTA"][0]]
    results = {
        "file_bytes": arguments.file.stat().st_size,
        "cores": cores,
        "seconds": {name: quartiles(values) for name, values in durations.items()},
        "ratios": {name: quartiles(values) for name, values in ratios.items()},
        "peak_bytes": {"import": measure_peak_bytes(import_command([arguments.file], out), out)},
    }
    results["run_bytes"] = sum(p.stat().st_size for p in out.rglob("*.parquet"))
    if arguments.large:
        results["peak_bytes"]["large"] = measure_peak_bytes(
            import_command([arguments.large], out), out
        )
    results["show_seconds"] = {
        view: quartiles(
            [measure_seconds([*STEPSCOPE, "show", str(out), view, "--json"]) for _ in range(6)][1:]
        )
        for view in VIEWS
    }
    return results


def divide(values, bases):
    return [value / base for value, base in zip(values, bases, strict=True)]


def report(results):
    for group, unit in (("seconds", "s"), ("ratios", ""), ("show_seconds", "s")):
        for name, values in results[group].items():
            spread = f"({values['low']:.2f} … {values['high']:.2f})"
            print(f"{group:13} {name:45} {values['median']:7.2f} {unit} {spread}")
    for name, peak in results["peak_bytes"].items():
        print(f"{'memory':13} {name:45} {peak / 1e6:7.0f} MB")


if __name__ == "__main__":
    main()
