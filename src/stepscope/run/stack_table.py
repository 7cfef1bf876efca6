"""Stack samples of processes as typed arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope import analysis
from stepscope.intervals import Int
from stepscope.run.period import Period
from stepscope.schema import FunctionFact, ProcessInfo, SourceLineFact, StackSamplerFact
from stepscope.store import RunReader


def sampling_period_ns(process: ProcessInfo) -> int | None:
    """Return the period of the stack sampler of a process; None where unknown."""
    periods = [sampler.period_ns for sampler in process.facts_of(StackSamplerFact)]
    return periods[0] if periods else None


def read_stack_samples(reader: RunReader, process: ProcessInfo) -> analysis.StackSamples:
    """Read the stack samples of one process."""
    rows = reader.table(
        "stacks",
        columns=["t_ns", "stack", "user_line"],
        condition="process = ?",
        parameters=(process.process,),
        order_by="t_ns",
        encoded=("stack",),
    )
    return analysis.StackSamples(
        t_ns=rows["t_ns"],
        weight_ns=analysis.weigh_samples(rows["t_ns"], sampling_period_ns(process) or 0),
        stack=rows["stack"].codes,
        stacks=[value or "" for value in rows["stack"].values],
        user_line=rows["user_line"],
        sources={
            (source.file, source.line): source.text for source in process.facts_of(SourceLineFact)
        },
        functions={
            (function.file, function.name): frozenset(function.uses)
            for function in process.facts_of(FunctionFact)
        },
    )


def find_stack_samples(
    reader: RunReader, patterns: Sequence[str], period: Period
) -> dict[str, Int]:
    """Find the times of the samples in a range whose stack matches a pattern, by process.

    A process that was sampled in the range is present even if no sample matches.

    Args:
        reader: the run.
        patterns: of SQL's LIKE.
        period: the range of time.
    """
    matches = " OR ".join("stack LIKE ?" for _ in patterns)
    rows = reader.sql(
        f"SELECT process, coalesce(list(t_ns) FILTER ({matches}), []) AS t_ns FROM stacks "  # noqa: S608 - only question marks and numbers are inserted
        f"WHERE {period.condition('t_ns')} GROUP BY process",
        patterns,
        within=period,
    )
    return {
        process: np.asarray(rows["t_ns"][row], dtype=np.int64)
        for row, process in enumerate(rows["process"].tolist())
    }
