"""An importer of metrics that a script wrote as JSON lines.

{"time": 1700000000.5, "step": 3, "loss": 0.25, "accuracy": 0.9}
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepscope import schema, store
from stepscope.importers import Format, ProgressCallback, Recorded, Refused, Result, read_content

FORMAT = Format(
    name="JSON metrics",
    tables=("scalars",),
    event="value",
    sentence="{files} of metrics, {events} in {run}",
    view="tensors",
)
_START = re.compile(rb'\s*\{\s*"time"\s*:\s*\d+(?:\.\d+)?\s*,\s*"step"\s*:\s*\d+\s*[,}]')
_NOT_METRICS = ("time", "step")


class JsonMetricsImporter:
    """Importer of metrics in JSON lines; see `stepscope.importers.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins with such a line."""
        return bool(_START.match(head))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import files, each as a process of the run."""
        results: list[Result] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                results.append(_import_file(path, writer, node, f"metrics-{index}"))
                progress(index, 1.0)
        return results


def _import_file(path: Path, writer: store.RunWriter, node: str, process: str) -> Result:
    try:
        lines = read_content(path).decode("utf-8", "replace").splitlines()
    except (OSError, EOFError, zlib.error) as error:
        return Refused(path, f"{path} cannot be read: {error}.")
    rows: list[tuple[int, int, str, float]] = []
    damaged_count = 0
    for line in filter(str.strip, lines):
        try:
            record = json.loads(line)
            t_ns, step = round(record["time"] * 1e9), int(record["step"])
            values = {k: float(v) for k, v in record.items() if k not in _NOT_METRICS}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            damaged_count += 1
        else:
            # A value that is not a number is none: the table has no room for what it is not.
            rows += [(t_ns, step, k, v) for k, v in values.items() if math.isfinite(v)]
    if not rows:
        return Refused(path, f"{path} has no metrics.")
    rows.sort()
    t_ns, steps, names, numbers = zip(*rows, strict=True)
    count = len(rows)
    writer.append(
        "scalars",
        {
            "node": store.DictColumn.constant(node, count),
            "process": store.DictColumn.constant(process, count),
            "log": store.DictColumn.constant("0e", count),
            "seq": np.arange(count, dtype=np.int64),
            "t_ns": np.array(t_ns, dtype=np.int64),
            "name": store.DictColumn.encode(names),
            "step": np.ma.MaskedArray(np.array(steps, dtype=np.int64)),
            "value": np.array(numbers, dtype=np.float64),
        },
    )
    writer.put_process(
        schema.ProcessInfo(
            process=process,
            node=node,
            pid=0,
            parent_pid=0,
            role="main",
            rank=None,
            started_ns=t_ns[0],
            ended_ns=t_ns[-1],
        )
    )
    lost = f"{damaged_count} damaged lines" if damaged_count else None
    return Recorded(name=path.name, form=FORMAT.name, event_count=count, lost=lost)
