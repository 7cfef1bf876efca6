"""Importer of operations of jobs with pipeline and data parallelism, in Parquet.

The columns are those of StragglerAnalysis (https://github.com/ByteDance-Seed/StragglerAnalysis):

    dp_rank, stage, step, optype, start_ts, duration      times in seconds
    rank, seq_id, mc, mb_id, gmc                          may be missing; -1 is unknown

`mc` is the chunk of the model among those of the stage, `gmc` the one in the order of the model.
Without `seq_id`, operations of a kind are numbered in the order of their starts.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope import store
from stepscope.importers import content
from stepscope.quantities import count_of

FORMAT = content.Format(
    name="operations of pipeline stages",
    tables=("stage_operations",),
    event="operation",
    sentence="{events} of pipeline stages in {run}",
)
_MAGIC = b"PAR1"
_REQUIRED = {
    "dp_rank": "INTEGER",
    "stage": "INTEGER",
    "step": "BIGINT",
    "optype": "VARCHAR",
    "start_ts": "DOUBLE",
    "duration": "DOUBLE",
}
_OPTIONAL = {
    "rank": "INTEGER",
    "seq_id": "BIGINT",
    "mc": "INTEGER",
    "mb_id": "INTEGER",
    "gmc": "INTEGER",
}
_MAX_SECONDS = 2**33
"""Times beyond are no seconds since 1970, and their nanoseconds may not fit 64 bits."""


class StageOperationsImporter:
    """Importer of operations of jobs with pipeline stages; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for any Parquet file."""
        return head.startswith(_MAGIC)

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: content.ProgressCallback
    ) -> list[content.Result]:
        """Import the first job, refuse others; see `registry.Importer.import_files`."""
        results: list[content.Result] = []
        imported: Path | None = None
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                if imported is None:
                    result = _import_file(path, writer)
                    imported = path if isinstance(result, content.Recorded) else None
                else:
                    result = content.Refused(
                        path,
                        f"{path} is another job than {imported.name}; import each into a run of "
                        "its own.",
                    )
                results.append(result)
                progress(index, 1.0)
        return results


def _import_file(path: Path, writer: store.RunWriter) -> content.Result:
    try:
        present = store.list_parquet_columns(path)
        missing = [name for name in _REQUIRED if name not in present]
        if missing:
            return content.Refused(
                path,
                f"{path} is no trace of a job with pipeline stages: it has no column "
                f"{', '.join(missing)}.",
            )
        types = _REQUIRED | {name: kind for name, kind in _OPTIONAL.items() if name in present}
        columns = store.read_parquet_columns(path, types)
    except store.UnreadableParquetError as error:
        return content.Refused(path, f"{path} cannot be read: {error}.")
    usable = _find_usable(columns)
    unusable_count = int((~usable).sum())
    if not usable.any():
        return content.Refused(path, f"{path} has no operation with a worker, a step and a time.")
    rows = _make_rows({name: values[usable] for name, values in columns.items()}, usable, path.name)
    writer.append("stage_operations", rows)
    return content.Recorded(
        name=path.name,
        form=FORMAT.name,
        event_count=int(usable.sum()),
        lost=f"{count_of(unusable_count, 'operation')} without a worker, a step or a time"
        if unusable_count
        else None,
    )


def _find_usable(columns: dict[str, np.ma.MaskedArray]) -> NDArray[np.bool_]:
    """Mask the operations that have all required values."""
    usable = np.ones(len(columns["step"]), dtype=np.bool_)
    for name in _REQUIRED:
        usable &= ~np.ma.getmaskarray(columns[name])
    start, duration = (np.ma.getdata(columns[name]) for name in ("start_ts", "duration"))
    with np.errstate(invalid="ignore"):
        usable &= (np.abs(start) < _MAX_SECONDS) & (duration >= 0) & (duration < _MAX_SECONDS)
    usable &= (np.ma.getdata(columns["stage"]) >= 0) & (np.ma.getdata(columns["dp_rank"]) >= 0)
    return usable


def _make_rows(
    columns: dict[str, np.ma.MaskedArray], usable: NDArray[np.bool_], name: str
) -> dict[str, Any]:
    count = len(columns["step"])
    kind = store.DictColumn.encode(np.ma.getdata(columns["optype"]).tolist())
    start_ns, duration_ns = (
        np.rint(np.ma.getdata(columns[column]).astype(np.float64) * 1e9).astype(np.int64)
        for column in ("start_ts", "duration")
    )
    sequence = _mask_unknown(columns, "seq_id", count)
    numbers = np.ma.getdata(sequence)
    if np.ma.getmaskarray(sequence).any():
        numbers = _number(columns, kind.codes, start_ns)
    return {
        "job": np.full(count, secrets.randbits(48), dtype=np.int64),
        "id": np.flatnonzero(usable),
        "name": store.DictColumn.constant(name, count),
        "data_rank": np.ma.getdata(columns["dp_rank"]),
        "stage": np.ma.getdata(columns["stage"]),
        "rank": _mask_unknown(columns, "rank", count),
        "step": np.ma.getdata(columns["step"]),
        "kind": kind,
        "sequence": numbers,
        "chunk": _mask_unknown(columns, "mc", count),
        "model_chunk": _mask_unknown(columns, "gmc", count),
        "microbatch": _mask_unknown(columns, "mb_id", count),
        "start_ns": start_ns,
        "duration_ns": duration_ns,
    }


def _mask_unknown(
    columns: dict[str, np.ma.MaskedArray], name: str, count: int
) -> np.ma.MaskedArray:
    """Return an optional column; null and negative numbers are masked."""
    values = columns.get(name)
    if values is None:
        return np.ma.array(np.full(count, -1), mask=True)
    data = np.ma.getdata(values)
    return np.ma.array(data, mask=np.ma.getmaskarray(values) | (data < 0))


def _number(
    columns: dict[str, np.ma.MaskedArray], kind: NDArray[np.int32], start_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Number the operations of each kind, worker and step in the order of their starts."""
    keys = [kind, *(np.ma.getdata(columns[name]) for name in ("stage", "dp_rank", "step"))]
    order = np.lexsort((start_ns, *keys))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    index = np.arange(len(order))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = index - np.maximum.accumulate(np.where(is_first, index, 0))
    return number
