"""Importer of logs of TORCH_TRACE: one per process, in a directory of that name."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope import schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Result,
    read_content,
    refuse,
)
from stepscope.importers.torch_trace.compilations import Compilation, CompilationBuilder
from stepscope.importers.torch_trace.log import HEAD, LogReader
from stepscope.quantities import count_of

FORMAT = Format(
    name="TORCH_TRACE",
    tables=("compilations", "compilation_events"),
    file="log",
    event="compilation",
    sentence="{files} of TORCH_TRACE, {events} in {run}",
    view="compilations",
)
LOG = "torch_trace"


class TorchTraceImporter:
    """Importer of logs; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins like a log."""
        return bool(HEAD.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import logs one after the other; see `registry.Importer.import_files`."""
        results: list[Result] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                results.append(_import_file(path, writer, node))
                progress(index, 1.0)
        return results


def _import_file(path: Path, writer: store.RunWriter, node: str) -> Result:
    reader, builder = LogReader(), CompilationBuilder()
    try:
        compilations = builder.build(reader.read(read_content(path)))
        if not compilations:
            raise ValueError("it has no compilation by torch.compile")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        return refuse(path, error)
    rank = schema.rank_in_name(path.name)
    _store(writer, node, builder.rank if rank is None else rank, compilations)
    open_count = sum(not compilation.has_ended for compilation in compilations)
    lost = []
    if reader.damaged_count:
        lost.append(
            count_of(reader.damaged_count, "damaged line or text", "damaged lines or texts")
        )
    if open_count:
        lost.append(f"the end of {count_of(open_count, 'compilation')}")
    return Recorded(
        name=path.name,
        form=FORMAT.name,
        event_count=len(compilations),
        lost="; ".join(lost) or None,
    )


def _store(
    writer: store.RunWriter, node: str, rank: int | None, compilations: Sequence[Compilation]
) -> None:
    process = f"compiler-{'unknown' if rank is None else rank}-{secrets.token_hex(4)}"
    writer.append(
        "compilations",
        _provenance(node, process, len(compilations))
        | {"rank": _integers([rank] * len(compilations), np.int32)}
        | _make_columns(compilations),
    )
    events = [
        (number, event)
        for number, compilation in enumerate(compilations)
        for event in compilation.events
    ]
    texts = ("kind", "name", "detail", "key", "file")
    writer.append(
        "compilation_events",
        _provenance(node, process, len(events))
        | {
            "compilation": np.array([number for number, _ in events], dtype=np.int64),
            **{
                name: store.DictColumn.encode(getattr(event, name) for _, event in events)
                for name in texts
            },
            "line": _integers([event.line for _, event in events], np.int32),
            "saved_ns": _integers([event.saved_ns for _, event in events]),
        },
    )
    times = list(_list_times(compilations))
    writer.put_process(
        schema.ProcessInfo(
            process=process,
            node=node,
            pid=0,
            parent_pid=0,
            role="main",
            rank=rank,
            started_ns=min(times, default=0),
            ended_ns=max(times, default=0),
            facts=[msgspec.to_builtins(schema.ImportedFact(form=FORMAT.name))],
        )
    )


def _list_times(compilations: Sequence[Compilation]) -> Iterator[int]:
    for compilation in compilations:
        if compilation.start_ns is not None:
            yield compilation.start_ns
            yield compilation.start_ns + (compilation.duration_ns or 0)


def _provenance(node: str, process: str, count: int) -> dict[str, Any]:
    return {
        "node": store.DictColumn.constant(node, count),
        "process": store.DictColumn.constant(process, count),
        "log": store.DictColumn.constant(LOG, count),
        "seq": np.arange(count, dtype=np.int64),
    }


def _make_columns(compilations: Sequence[Compilation]) -> dict[str, Any]:
    texts = ("compile_id", "direction", "function", "file", "failure")
    numbers = (
        *("start_ns", "duration_ns", "backend_ns", "inductor_ns", "codegen_ns", "restart_ns"),
        *("earlier_count", "guard_count", "operator_count", "graph_break_count"),
    )
    return {
        **{
            name: store.DictColumn.encode(getattr(item, name) for item in compilations)
            for name in texts
        },
        **{name: _integers([getattr(item, name) for item in compilations]) for name in numbers},
        "line": np.array([item.line for item in compilations], dtype=np.int32),
        "has_ended": np.array([item.has_ended for item in compilations], dtype=np.int16),
    }


def _integers(values: Sequence[int | None], dtype: Any = np.int64) -> np.ma.MaskedArray:
    mask = np.array([value is None for value in values], dtype=np.bool_)
    return np.ma.MaskedArray(np.array([value or 0 for value in values], dtype=dtype), mask=mask)
