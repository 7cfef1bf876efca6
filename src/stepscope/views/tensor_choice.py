"""Choice of the rank and the mode whose tensors a view shows."""

from __future__ import annotations

from stepscope.run import RecordedTensors, Run, TensorSelection, number_ranks

NO_TENSORS = (
    "no weights or gradients were recorded: run the job with `--tensors weights,gradients,losses`"
)


def select_tensors(
    run: Run,
    recorded: RecordedTensors,
    rank: int | None,
    *,
    collections: tuple[str, ...] = (),
    tensors: tuple[str, ...] = (),
) -> TensorSelection:
    """Select tensors of a rank, by default the first that recorded any, while it trained.

    Raises:
        UsageError: there is no such rank.
    """
    number_ranks(run).require(rank)
    return TensorSelection(
        rank=recorded.ranks[0] if rank is None else rank,
        mode=recorded.modes[0],
        collections=collections,
        tensors=tensors,
    )


def describe_columns(steps_per_column: int, aggregate: str) -> str | None:
    """Explain columns that hold more than one recorded step; None otherwise."""
    if steps_per_column == 1:
        return None
    return f"each column is the {aggregate} of up to {steps_per_column} recorded steps"
