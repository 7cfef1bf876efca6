"""Every write of a profiled job fails once: does the job notice, and is anything lost silently?

    python -m benchmarks.write_faults [--rounds 4] [--minutes M]

Walks over the calls that write below the run and the spool, in each process of the job of
tests/support/write_faults.py: a job in which only the N-th fails, and one in which it and all later
ones fail. The error is another one from call to call, so that four rounds combine each call with
each error. Counts are added to benchmarks/results/write_faults.json after every job, so that an
interrupted walk continues there; `--fresh` starts from zero. The directory of a job in which
something is wrong is kept and named. docs/reliability.md is written from the counts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.reliability_doc import DOCUMENT, WRITE_FAULTS, WriteFaults
from tests.support.revision import add_revision
from tests.support.write_faults import (
    ALWAYS,
    SENTENCES,
    TARGETS,
    Fault,
    FaultCounts,
    FaultOutcome,
    run_with_fault,
)
from tools.docs.blocks import write_document


def run_job(fault: Fault) -> FaultOutcome:
    """Run a job; keep its directory if something is wrong."""
    directory = Path(tempfile.mkdtemp(prefix="stepscope-faults-"))
    outcome = run_with_fault(fault, directory)
    if outcome.wrong:
        print(f"{fault.title}: {outcome.wrong} in {directory}", file=sys.stderr, flush=True)
    else:
        shutil.rmtree(directory)
    return outcome


def walk_call(results: WriteFaults, process: str, directory: str, call: int) -> bool:
    """Let one call fail, alone and with all later ones; False if there is no such call."""
    errors = list(SENTENCES)
    counts = results.counts.setdefault(f"{process} {directory}", FaultCounts())
    outcomes = []
    for number, last in enumerate((call, ALWAYS)):
        error = errors[(call + 2 * number + results.round) % len(errors)]
        fault = Fault(process=process, directory=directory, error=error, first=call, last=last)
        outcomes.append(run_job(fault))
        counts.add(fault, outcomes[-1])
    return any(outcome.failed_calls for outcome in outcomes)


def save(results: WriteFaults) -> None:
    """Store the counts, and write the document."""
    WRITE_FAULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    write_document(DOCUMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=len(SENTENCES))
    parser.add_argument("--minutes", type=float, help="time limit")
    parser.add_argument("--fresh", action="store_true", help="forget earlier counts")
    arguments = parser.parse_args()
    results = WriteFaults.load()
    if arguments.fresh:
        results = WriteFaults()
    add_revision(results.revisions)
    deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    while results.round < arguments.rounds:
        for process, directory in TARGETS[results.target :]:
            while walk_call(results, process, directory, results.call):
                results.call += 1
                save(results)
                if deadline is not None and time.monotonic() > deadline:
                    return
            results.target, results.call = results.target + 1, 1
        results.round, results.target = results.round + 1, 0
        save(results)


if __name__ == "__main__":
    main()
