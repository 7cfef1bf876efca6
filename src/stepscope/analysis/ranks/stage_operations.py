"""Operations of a job with pipeline and data parallelism, aligned over steps and data ranks.

The model is cut into stages, one worker (data rank, stage) has one of them, or several chunks of
the model with virtual stages. Every data rank runs the same operations in every step, so an
operation is identified by its stage, kind and sequence number, and its times are an array

    start[operation, step, data rank], NaN where the trace lacks it

An operation counts if at least half of the cells (step, data rank) have it; a step counts if it
has at least nine tenths of these operations.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import fields
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import group_rows

Float = NDArray[np.float64]

FORWARD, BACKWARD = "forward-compute", "backward-compute"
ALL_GATHER, REDUCE_SCATTER = "params-all-gather", "grads-reduce-scatter"
SEPARATE_ALL_REDUCE = "separate-grads-all-reduce"
EMBEDDING_ALL_REDUCE = "embedding-grads-all-reduce"
NORM_ALL_REDUCE = "layernorm-grads-all-reduce"
CLIP, OPTIMIZER, COLLECTION = "optimizer-clip-main-grad", "optimizer", "gc"
SENDS = {FORWARD: "forward-send", BACKWARD: "backward-send"}
RECEIVES = {FORWARD: "forward-recv", BACKWARD: "backward-recv"}
"""Kind of the transfer by the kind of the computation that sends or receives."""
COMMUNICATION = frozenset(
    {
        *SENDS.values(),
        *RECEIVES.values(),
        *(ALL_GATHER, REDUCE_SCATTER, SEPARATE_ALL_REDUCE),
        *(EMBEDDING_ALL_REDUCE, NORM_ALL_REDUCE, CLIP),
    }
)
"""Kinds that communicate; clipping gradients sums their norm over all workers."""
KINDS = frozenset({FORWARD, BACKWARD, OPTIMIZER, COLLECTION, *COMMUNICATION})

MIN_PRESENT_RATIO = 0.5
"""Operations of fewer cells are left out."""
MIN_COMPLETE_RATIO = 0.9
"""Steps with fewer of the operations are left out."""


class StageOperationsError(ValueError):
    """Operations that are not those of a job with pipeline stages; the message is a clause."""


class StageOperations(msgspec.Struct, frozen=True, kw_only=True):
    """Operations as recorded, in any order; arrays have one entry per operation."""

    data_rank: intervals.Int
    stage: intervals.Int
    rank: intervals.Int
    step: intervals.Int
    kind: intervals.Int
    """Index into `kinds`."""
    kinds: list[str]
    sequence: intervals.Int
    """Number among the operations of its kind in the step of its worker."""
    chunk: intervals.Int
    """Chunk of the model among those of the stage, -1 if unknown."""
    model_chunk: intervals.Int
    """Chunk of the model in the order of the model, -1 if unknown."""
    microbatch: intervals.Int
    """-1 if unknown."""
    start_ns: intervals.Int
    end_ns: intervals.Int

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: NDArray[np.bool_] | intervals.Int) -> StageOperations:
        """Select operations by a mask or an index array."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return StageOperations(**{n: v if n == "kinds" else v[rows] for n, v in columns.items()})


class AlignedOperations(msgspec.Struct, frozen=True, kw_only=True):
    """Operations aligned over steps and data ranks; the first axis is the operation."""

    stage: intervals.Int
    kind: list[str]
    sequence: intervals.Int
    chunk: intervals.Int
    """-1 if unknown."""
    model_chunk: intervals.Int
    """Of computations: chunk in the order of the model. -1 for others."""
    microbatch: intervals.Int
    """Of computations; -1 for others."""
    start: Float
    """Shape (operations, steps, data ranks); nanoseconds since the first start of the step."""
    end: Float
    steps: intervals.Int
    data_ranks: intervals.Int
    rank: intervals.Int
    """Shape (data ranks, stages): global rank of each worker, -1 where it has no operation."""
    left_out_steps: int
    """Steps that lack more than a tenth of the operations."""
    left_out_operations: int
    """Recorded operations that most cells lack."""

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return int(self.rank.shape[1])

    def find(self, *kinds: str, stage: int | None = None) -> list[int]:
        """List the operations of some kinds, of one stage or of all."""
        return [
            index
            for index, kind in enumerate(self.kind)
            if kind in kinds and (stage is None or self.stage[index] == stage)
        ]


def align_operations(operations: StageOperations) -> AlignedOperations:
    """Align operations over steps and data ranks.

    Raises:
        StageOperationsError: they contradict each other, or no step is complete.
    """
    _check(operations)
    steps, step = np.unique(operations.step, return_inverse=True)
    data_ranks, data = np.unique(operations.data_rank, return_inverse=True)
    same = group_rows(operations.stage, operations.kind, operations.sequence)
    shape = (len(same), len(steps), len(data_ranks))
    count = np.zeros(shape, dtype=np.int64)
    np.add.at(count, (same.group, step, data), 1)
    if count.max() > 1:
        raise StageOperationsError(_explain_repeated(operations, count.max(axis=(0, 1))))
    usual = (count > 0).mean(axis=(1, 2)) >= MIN_PRESENT_RATIO
    complete = (count[usual] > 0).mean(axis=(0, 2)) >= MIN_COMPLETE_RATIO
    if not usual.any() or not complete.any():
        raise StageOperationsError("no step has nine tenths of the operations of the others")
    start, end = np.full(shape, np.nan), np.full(shape, np.nan)
    first_ns = group_rows(operations.step).minima(operations.start_ns)[step]
    start[same.group, step, data] = operations.start_ns - first_ns
    end[same.group, step, data] = operations.end_ns - first_ns
    first = same.first[usual]
    kind = [operations.kinds[code] for code in operations.kind[first].tolist()]
    stage_count = int(operations.stage.max()) + 1
    computes = np.array([name in {FORWARD, BACKWARD} for name in kind])
    chunk = operations.chunk[first]
    model_chunk = operations.model_chunk[first]
    derived = np.maximum(chunk, 0) * stage_count + operations.stage[first]
    selection = np.ix_(usual, complete)
    aligned = AlignedOperations(
        stage=operations.stage[first],
        kind=kind,
        sequence=operations.sequence[first],
        chunk=chunk,
        model_chunk=np.where(computes, np.where(model_chunk >= 0, model_chunk, derived), -1),
        microbatch=operations.microbatch[first],
        start=start[selection],
        end=end[selection],
        steps=steps[complete],
        data_ranks=data_ranks,
        rank=_number_ranks(operations, data, len(data_ranks), stage_count),
        left_out_steps=int((~complete).sum()),
        left_out_operations=int(count[~usual].sum()),
    )
    for kind_name in (FORWARD, BACKWARD):
        for index in range(stage_count):
            if not aligned.find(kind_name, stage=index):
                raise StageOperationsError(f"stage {index} has no {kind_name}")
    return aligned


def _check(operations: StageOperations) -> None:
    if not len(operations):
        raise StageOperationsError("there is no operation")
    unknown = sorted(set(operations.kinds) - KINDS)
    if unknown:
        raise StageOperationsError(f"operations of the kind {unknown[0]} are not known")
    if (operations.end_ns < operations.start_ns).any():
        raise StageOperationsError("an operation ends before it starts")
    if operations.stage.min() < 0:
        raise StageOperationsError("an operation has a stage below 0")


def _explain_repeated(operations: StageOperations, by_data_rank: intervals.Int) -> str:
    """Explain that cells have an operation more than once."""
    worker = group_rows(operations.data_rank, operations.stage)
    ranks = group_rows(worker.group, operations.rank)
    if len(ranks) > len(worker):
        return (
            "several ranks have the same data rank and stage; keep one rank of each "
            "tensor-parallel group"
        )
    data_rank = np.unique(operations.data_rank)[int(by_data_rank.argmax())]
    return f"data rank {data_rank} has an operation of one number twice in a step"


def _number_ranks(
    operations: StageOperations, data: NDArray[np.int64], data_count: int, stage_count: int
) -> intervals.Int:
    rank = np.full((data_count, stage_count), -1, dtype=np.int64)
    rank[data, operations.stage] = operations.rank
    return rank
