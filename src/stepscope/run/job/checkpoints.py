"""Checkpoints of a job that its restarts loaded: which results were kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepscope import schema
from stepscope.run.model.run import Run

_QUERY = (
    "SELECT process, kind, labels, start_ns, end_ns FROM spans "
    "WHERE kind IN ('checkpoint', 'checkpoint_load') ORDER BY start_ns"
)


class _Access(NamedTuple):
    """Save or load of a checkpoint."""

    process: str
    incarnation: int
    is_load: bool
    identities: frozenset[tuple[str, str]]
    """Its path and the identity of its file, as far as they are recorded."""
    start_ns: int
    end_ns: int | None


class LoadedState(NamedTuple):
    """State from which an incarnation went on."""

    process: str
    """Process that saved it; empty if the incarnation began from the start."""
    t_ns: int
    """When it was saved, epoch nanoseconds; 0 for the start."""


def read_loaded_states(
    run: Run, processes: Sequence[schema.ProcessInfo]
) -> dict[int, LoadedState | None]:
    """Read from which state each incarnation but the first went on; None where that is unknown.

    A load is matched with the last save, complete before it, of the same file, or else of the same
    path. Of a job that neither saved nor loaded anything, each incarnation begins from
    the start.
    """
    numbers = sorted({process.incarnation for process in processes})
    if len(numbers) < 2 or not run.reader.has("spans"):
        return {}
    accesses = _read_accesses(run, {p.process: p.incarnation for p in processes})
    saves = [access for access in accesses if not access.is_load]
    loaded: dict[int, LoadedState | None] = {}
    for number in numbers[1:]:
        loads = [a for a in accesses if a.is_load and a.incarnation == number]
        earlier = [save for save in saves if save.incarnation < number]
        sources = [save for load in loads if (save := _find_source(load, earlier)) is not None]
        if sources:
            last = max(sources, key=lambda save: save.start_ns)
            loaded[number] = LoadedState(last.process, last.start_ns)
        else:
            loaded[number] = None if earlier else LoadedState("", 0)
    return loaded


def _find_source(load: _Access, saves: Sequence[_Access]) -> _Access | None:
    complete = [s for s in saves if s.end_ns is not None and s.end_ns <= load.start_ns]
    for key in ("file", "path"):
        identities = {identity for identity in load.identities if identity[0] == key}
        matching = [save for save in complete if save.identities & identities]
        if matching:
            return matching[-1]
    return None


def _read_accesses(run: Run, incarnations: Mapping[str, int]) -> list[_Access]:
    rows = run.reader.sql(_QUERY)
    ends = np.ma.filled(rows["end_ns"], -1)
    return [
        _Access(
            process=process,
            incarnation=incarnations[process],
            is_load=kind == "checkpoint_load",
            identities=frozenset(
                (key, value)
                for key, value in json.loads(labels or "{}").items()
                if key in {"file", "path"} and isinstance(value, str)
            ),
            start_ns=start_ns,
            end_ns=None if end_ns < 0 else end_ns,
        )
        for process, kind, labels, start_ns, end_ns in zip(
            rows["process"].tolist(),
            rows["kind"].tolist(),
            rows["labels"].tolist(),
            rows["start_ns"].tolist(),
            ends.tolist(),
            strict=True,
        )
        if process in incarnations
    ]
