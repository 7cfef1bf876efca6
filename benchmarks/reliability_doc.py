"""Write docs/reliability.md from the counts of the fault suites.

python -m benchmarks.reliability_doc
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.quantities import duration, memory
from tests.fuzz.counts import FuzzCounts, load_counts
from tests.support.kills import KINDS, KillCounts

ROOT = Path(__file__).resolve().parents[1]
KILLS = ROOT / "benchmarks" / "results" / "kills.json"
DOC = ROOT / "docs" / "reliability.md"

HEADER = """\
# Reliability

Written by `python -m benchmarks.reliability_doc` from the counts in
`benchmarks/results/kills.json`, which `make soak` adds to; do not edit.

## Kills

A job of one or four ranks runs under `stepscope run`. Before each step, a rank writes the number of
the step to a file of its own. Processes are killed with SIGKILL at random moments, the job ends,
`stepscope recover` runs, and the run is compared with the files:

- **lost**: a step that a rank had finished is not in the run.
- **double**: a step is in the run more than once, or no rank took it.
- **unreadable**: a run cannot be read, or its recovery fails.

The step during which its own rank is killed may be missing: a step is kept once its record is
written ([Storage](capture.md#storage)).

| killed | kills | runs | steps | lost | double | unreadable |
|---|---:|---:|---:|---:|---:|---:|
"""

FUZZING = """\

## Hostile input

From the last `make fuzz`, in `benchmarks/results/fuzz.json`. A decoder gets files that
[atheris](https://github.com/google/atheris) changes, guided by the coverage of the decoder's code;
the HTTP API gets requests that [schemathesis](https://schemathesis.readthedocs.io/) makes from its
OpenAPI document.

- **defects**: crashes, cases of more than 10 s or 2 GB, errors that are no sentence, answers with a
  status of 500 or more, requests without an answer. Files outside of the run are checked as well.
- **slowest**: wall time of one case, of at most 200 kB, on two cores that had other work.

| input | cases | defects | slowest | most memory |
|---|---:|---:|---:|---:|
"""


def reliability_doc() -> str:
    """Return the document for the counts of today."""
    counts = msgspec.json.decode(KILLS.read_bytes(), type=dict[str, KillCounts])
    rows = [
        f"| {KINDS[name].title} | {c.kills:,} | {c.runs:,} | {c.steps:,} | {c.lost:,} "
        f"| {c.double:,} | {c.unreadable:,} |\n"
        for name, c in counts.items()
    ]
    return HEADER + "".join(rows) + _describe_fuzzing(load_counts())


def _describe_fuzzing(counts: dict[str, FuzzCounts]) -> str:
    rows = [
        f"| {name} | {c.cases:,} | {c.defects:,} | {duration(1e9 * c.slowest_s)} "
        f"| {memory(c.peak_memory_bytes)} |\n"
        for name, c in counts.items()
    ]
    return FUZZING + "".join(rows)


def write_reliability_doc() -> None:
    """Write the document."""
    DOC.write_text(reliability_doc())


if __name__ == "__main__":
    write_reliability_doc()
