"""Write docs/reliability.md from the counts of the fault suites.

python -m benchmarks.reliability_doc
"""

from __future__ import annotations

from pathlib import Path

import msgspec

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
- **unreadable**: a run or a detailed window cannot be read, or the recovery of a run fails.
- **unexplained**: a detailed window that a rank opened is neither in the run nor named as missing.

The step during which its own rank is killed may be missing: a step is kept once its record is
written ([Storage](capture.md#storage)).

| killed | kills | runs | steps | windows | lost | double | unreadable | unexplained |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def reliability_doc() -> str:
    """Return the document for the counts of today."""
    counts = msgspec.json.decode(KILLS.read_bytes(), type=dict[str, KillCounts])
    rows = [
        f"| {KINDS[name].title} | {c.kills:,} | {c.runs:,} | {c.steps:,} | {c.windows:,} "
        f"| {c.lost:,} | {c.double:,} | {c.unreadable:,} | {c.unexplained:,} |\n"
        for name, c in counts.items()
    ]
    return HEADER + "".join(rows)


def write_reliability_doc() -> None:
    """Write the document."""
    DOC.write_text(reliability_doc())


if __name__ == "__main__":
    write_reliability_doc()
