"""Write docs/reliability.md from the counts of the fault suites.

python -m benchmarks.reliability_doc
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepscope.quantities import duration, memory
from tests.fuzz.counts import FuzzCounts, load_counts
from tests.support.kills import KINDS, KillCounts
from tests.support.write_faults import SENTENCES, TARGETS, FaultCounts

ROOT = Path(__file__).resolve().parents[1]
KILLS = ROOT / "benchmarks" / "results" / "kills.json"
WRITE_FAULTS = ROOT / "benchmarks" / "results" / "write_faults.json"
DOC = ROOT / "docs" / "reliability.md"
KILLS_OF_EACH_KIND = 1000

HEADER = """\
# Reliability

Written by `python -m benchmarks.reliability_doc` from the counts in `benchmarks/results`, which
`make soak`, `make write-faults` and `make fuzz` add to; do not edit.

## Kills

A job of one or four ranks runs under `stepscope run`. Before each step, a rank writes the number of
the step to a file of its own. Processes are killed with SIGKILL at random moments, the job ends,
`stepscope recover` runs, and the run is compared with the files:

- **lost**: a step that a rank had finished is not in the run.
- **double**: a step is in the run more than once, or no rank took it.
- **unreadable**: a run or a detailed window cannot be read, or the recovery of a run fails.
- **unexplained**: a detailed window that a rank opened is neither in the run nor named as missing.

The step during which its own rank is killed may be missing: a step is kept once its record is
written ([Storage](capture.md#storage)). The aim is {aim:,} kills of each kind; `make soak`
continues. {revisions}

| killed | kills | runs | steps | windows | lost | double | unreadable | unexplained |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""

WRITE_FAULTS_HEADER = """\

## Failed writes

The same for every call that writes a file of the run or of the spool, in each process of a short
job: open, write, mmap, fsync, rename and so on end with ENOSPC, EDQUOT, EIO or EROFS, in one job
only at the N-th call, in another one from the N-th on. The job has a result that depends on each of
its steps, and an exit status of its own. {round_count} rounds combine each call with each error;
`make write-faults` continues. {revisions}

- **not started**: `stepscope run` refused to start the job because the directory of `--out` cannot
  hold a run; it says so in one sentence.
- **recovered**: the rest of the records was in the spool, and `stepscope recover` stored it.
- **incomplete**: steps could not be written to the spool; the verdict begins with the cause.
- **wrong**: the job's result or exit status changed, steps are missing without the cause or counted
  twice, the run cannot be read, or there was a traceback.

| process | files | rounds | calls | jobs | not started | recovered | incomplete | wrong |
|---|---|---|---:|---:|---:|---:|---:|---:|
"""


class Kills(msgspec.Struct):
    """Counts of `benchmarks.kills`."""

    counts: dict[str, KillCounts] = {}
    """By kind."""
    revisions: list[str] = []
    """Revisions of stepscope that were counted."""

    @classmethod
    def load(cls) -> Kills:
        """Load the counts of earlier rounds."""
        if not KILLS.exists():
            return cls()
        return msgspec.json.decode(KILLS.read_bytes(), type=cls)


class WriteFaults(msgspec.Struct):
    """Counts of `benchmarks.write_faults`, and the place at which it continues."""

    counts: dict[str, FaultCounts] = {}
    """By process and directory."""
    revisions: list[str] = []
    """Revisions of stepscope that were counted."""
    round: int = 0
    target: int = 0
    call: int = 1

    @classmethod
    def load(cls) -> WriteFaults:
        """Load the counts of earlier jobs."""
        if not WRITE_FAULTS.exists():
            return cls()
        return msgspec.json.decode(WRITE_FAULTS.read_bytes(), type=cls)


FUZZING = """\

## Hostile input

From the last `make fuzz`, in `benchmarks/results/fuzz.json`. A decoder gets files that
[atheris](https://github.com/google/atheris) changes, guided by the coverage of the decoder's code;
the HTTP API gets requests that [schemathesis](https://schemathesis.readthedocs.io/) makes from its
OpenAPI document.

- **defects**: crashes, cases of more than 10 s or 2 GB, errors that are no sentence, answers with a
  status of 500 or more, requests without an answer. Files outside of the run are checked as well.
- **slowest**: wall time of one case, of at most 200 kB, on two cores that had other work.

| input | cases | defects | slowest | most memory | revision |
|---|---:|---:|---:|---:|---|
"""


def reliability_doc() -> str:
    """Return the document for the counts of today."""
    return (
        _describe_kills(Kills.load()) + _describe_faults(WriteFaults.load()) + _describe_fuzzing()
    )


def _describe_kills(kills: Kills) -> str:
    rows = [
        f"| {kind.title} | {c.kills:,} | {c.runs:,} | {c.steps:,} | {c.windows:,} "
        f"| {c.lost:,} | {c.double:,} | {c.unreadable:,} | {c.unexplained:,} |\n"
        for name, kind in KINDS.items()
        for c in [kills.counts.get(name, KillCounts())]
    ]
    header = HEADER.format(aim=KILLS_OF_EACH_KIND, revisions=_describe_revisions(kills.revisions))
    return header + "".join(rows)


def _describe_revisions(revisions: Sequence[str]) -> str:
    names = ", ".join(f"`{revision}`" for revision in revisions) or "not recorded"
    return f"Counted revisions: {names}."


def _describe_faults(faults: WriteFaults) -> str:
    titles = {"trainer": "training process", "watcher": "rules", "launcher": "`stepscope run`"}
    rows = []
    for number, (process, directory) in enumerate(TARGETS):
        c = faults.counts.get(f"{process} {directory}", FaultCounts())
        rounds = f"{faults.round + (number < faults.target)} of {len(SENTENCES)}"
        if number == faults.target and faults.call > 1:
            rounds += f", then to call {faults.call - 1}"
        rows.append(
            f"| {titles.get(process, process)} | {directory} | {rounds} | {c.call_count:,} "
            f"| {c.jobs:,} | {c.refused:,} | {c.recovered:,} | {c.incomplete:,} "
            f"| {sum(c.wrong.values()):,} |\n"
        )
    header = WRITE_FAULTS_HEADER.format(
        round_count=len(SENTENCES), revisions=_describe_revisions(faults.revisions)
    )
    return header + "".join(rows)


def _describe_fuzzing() -> str:
    rows = [
        f"| {name} | {c.cases:,}{_describe_successes(c)} | {c.defects:,} "
        f"| {duration(1e9 * c.slowest_s)} | {memory(c.peak_memory_bytes)} "
        f"| {c.revision or 'not recorded'} |\n"
        for name, c in load_counts().items()
    ]
    return FUZZING + "".join(rows)


def _describe_successes(counts: FuzzCounts) -> str:
    return "" if counts.successes is None else f", {counts.successes:,} of them with success"


def write_reliability_doc() -> None:
    """Write the document."""
    DOC.write_text(reliability_doc())


if __name__ == "__main__":
    write_reliability_doc()
