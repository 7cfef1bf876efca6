"""Measure rows of the laboratory; `python -m benchmarks.laboratory --help`."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.laboratory.bench import Bench
from benchmarks.laboratory.page import describe_row
from benchmarks.laboratory.results import RowResult, describe_machine, read_revision, store_result
from benchmarks.laboratory.rounds import measure_rounds
from benchmarks.laboratory.rows import Row, all_rows
from benchmarks.measuring import ROOT, Build, use_bytecode


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.laboratory")
    parser.add_argument("--quick", action="store_true", help="only the quick set (10 minutes)")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows by their names")
    parser.add_argument("--rounds", type=int, metavar="N", help="default: those of the row")
    parser.add_argument("--today", type=Path, metavar="DIR", help="checkout of the earlier build")
    parser.add_argument("--peers", nargs="+", metavar="PYTHON", default=[])
    parser.add_argument("--directory", type=Path, help="keeps inputs; default: a new one")
    parser.add_argument("--remark", default="", help="stored with the results")
    parser.add_argument("--list", action="store_true", help="list the rows and do nothing")
    arguments = parser.parse_args()
    rows = [
        row
        for row in all_rows().values()
        if re.search(arguments.only, row.name) and (row.is_quick or not arguments.quick)
    ]
    if arguments.list:
        print("\n".join(row.name for row in rows))
        return
    earlier = arguments.today and Build(arguments.today.resolve())
    if earlier and not any((earlier.root / "src").rglob("*.so")):
        library = earlier.root / "src" / "stepscope" / "native_library.py"
        raise SystemExit(f"Compile the libraries of the earlier build: {sys.executable} {library}")
    with tempfile.TemporaryDirectory(prefix="stepscope-laboratory-") as temporary:
        directory = (arguments.directory or Path(temporary)).resolve()
        directory.mkdir(exist_ok=True)
        use_bytecode(directory)
        os.environ["XDG_CACHE_HOME"] = str(directory / "cache")
        os.chdir(directory)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the measured command, too
        bench = Bench(directory, earlier, tuple(arguments.peers))
        for row in rows:
            measure_row(row, bench, arguments.rounds or row.rounds, arguments.remark)


def measure_row(row: Row, bench: Bench, count: int, remark: str) -> None:
    """Measure a row and store its result, after each round in case it is interrupted."""
    print(row.name, file=sys.stderr)
    for measured in measure_rounds(row.subjects(bench), count, warm_up=row.warm_up):
        last = measured.rounds[-1]
        figures = ", ".join(f"{name} {value:.3g}" for name, value in last.values.items())
        disturbed = " (disturbed)" if last.is_disturbed else ""
        print(f"  {len(measured.rounds)}/{count}: {figures} {row.unit}{disturbed}", file=sys.stderr)
        result = RowResult(
            date=datetime.now(UTC).date().isoformat(),
            machine=describe_machine(),
            revision=read_revision(ROOT),
            earlier=bench.earlier and read_revision(bench.earlier.root),
            remark=remark,
            measured=measured,
        )
        store_result(row.name, result, list(all_rows()))
    print(describe_row(row, result))


if __name__ == "__main__":
    main()
