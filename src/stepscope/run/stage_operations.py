"""Operations of a job with pipeline stages, of an imported trace."""

from __future__ import annotations

import numpy as np

from stepscope.analysis import StageOperations
from stepscope.run.run import Run

_COLUMNS = (
    *("data_rank", "stage", "rank", "step", "kind", "sequence"),
    *("chunk", "model_chunk", "microbatch", "start_ns", "duration_ns"),
)


def has_stage_operations(run: Run) -> bool:
    """Return True if the run has operations of a job with pipeline stages."""
    return run.reader.row_count("stage_operations") > 0


def read_stage_operations(run: Run) -> StageOperations:
    """Read the operations of a job with pipeline stages; there may be none."""
    rows = run.reader.table("stage_operations", _COLUMNS, encoded=("kind",))
    kind = rows["kind"]
    numbers = {
        name: np.ma.filled(np.ma.asarray(rows[name]).astype(np.int64), -1)
        for name in _COLUMNS
        if name not in {"kind", "duration_ns"}
    }
    return StageOperations(
        **numbers,
        kind=kind.codes.astype(np.int64),
        kinds=[value or "" for value in kind.values],
        end_ns=numbers["start_ns"] + rows["duration_ns"],
    )
