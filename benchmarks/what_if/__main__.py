"""Check simulated fixes; `python -m benchmarks.what_if --help`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.laboratory.results import describe_machine, read_revision
from benchmarks.measuring import ROOT, CommandError, use_bytecode
from benchmarks.what_if.hta import find_peer_path, read_version
from benchmarks.what_if.jobs import JOBS
from benchmarks.what_if.pairs import measure_pair
from benchmarks.what_if.recordings import group_traces, measure_recording
from benchmarks.what_if.results import Results, load_results, store_results

TRACES = ROOT.parent / "shared" / "traces"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.what_if")
    parser.add_argument(
        "--traces", type=Path, metavar="DIR", default=TRACES if TRACES.is_dir() else None
    )
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter that has the peer")
    parser.add_argument("--rounds", type=int, metavar="N", default=7, help="of each fix")
    parser.add_argument("--only", metavar="REGEX", default="", help="traces and loops by names")
    arguments = parser.parse_args()
    results = load_results()
    results.machine, results.revision = describe_machine(), read_revision(ROOT)
    results.date, results.rounds = datetime.now(UTC).date().isoformat(), arguments.rounds
    if arguments.hta:
        results.peer = read_version(arguments.hta)
    with tempfile.TemporaryDirectory(prefix="stepscope-what-if-") as directory:
        use_bytecode(Path(directory))
        if arguments.traces:
            _measure_traces(arguments, results, Path(directory))
        _measure_pairs(arguments, results, Path(directory))


def _measure_traces(arguments: argparse.Namespace, results: Results, directory: Path) -> None:
    for name, paths in group_traces(arguments.traces).items():
        if not re.search(arguments.only, name):
            continue
        print(name, file=sys.stderr)
        graphs = measure_recording(paths, directory / name)
        for index, graph in enumerate(graphs):
            results.recordings[name if len(graphs) == 1 else f"{name} {index}"] = graph
        for path in paths if arguments.hta else ():
            results.peer_paths[path.name.removesuffix(".json.gz")] = find_peer_path(
                arguments.hta, path
            )
        store_results(results)


def _measure_pairs(arguments: argparse.Namespace, results: Results, directory: Path) -> None:
    for name, job in JOBS.items():
        if not re.search(arguments.only, name):
            continue
        print(name, file=sys.stderr)
        try:
            pair = measure_pair(job, arguments.rounds, directory / "pairs" / name)
        except CommandError as error:
            print(f"  not measured: {error}", file=sys.stderr)
            continue
        pairs = results.pairs | {name: pair}
        results.pairs = {loop: pairs[loop] for loop in JOBS if loop in pairs}
        store_results(results)


if __name__ == "__main__":
    main()
