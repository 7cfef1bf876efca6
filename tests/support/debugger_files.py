"""Small files as SageMaker Debugger writes them.

output = DebuggerOutput(tmp_path / "profiler-output")
output.system("algo-1", [sample("CPUUtilization", "cpu0", 50, second=1)])
output.events("77-algo-1", [event("Forward", "Net", 1_000, 500)])
run = output.imported()
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.run import Run
from tests.support.imported_runs import import_into

EPOCH_S = 1_600_000_000
EPOCH_US = EPOCH_S * 10**6
EPOCH_NS = EPOCH_S * 10**9
HOUR = "2020091312"
Event = dict[str, Any]

SHARED = Path(__file__).parents[2].parent / "shared" / "traces" / "smdebug"
"""Real files; they are never copied into the project."""


def sample(
    dimension: str, name: str, value: float, *, second: float = 0, node: str = "algo-1"
) -> dict[str, Any]:
    """Return a sample; `second` counts from EPOCH_S."""
    return {
        "Type": "any",
        "Name": name,
        "Dimension": dimension,
        "Value": value,
        "NodeId": node,
        "Timestamp": msgspec.Raw(f"{EPOCH_S + second:.7f}".encode()),
    }


def event(phase: str, name: str, start_us: int, duration_us: int | None, **args: Any) -> Event:
    """Return a range; times count from EPOCH_S."""
    members = {"phase": phase, "name": name, "ph": "X", "ts": start_us, "dur": duration_us}
    return {**members, "args": args} if args else members


def step(number: int, start_us: int, duration_us: int, mode: str = "TRAIN") -> Event:
    """Return a step."""
    name = f"Step:ModeKeys.{mode}"
    return event(name, name, start_us, duration_us, step_num=str(number), pid=77)


def operator(name: str, start_us: int, duration_us: int, *, step: int, thread: int = 1) -> Event:
    """Return an operator of detailed profiling, on the host."""
    return {**event("cpu_functions", name, start_us, duration_us, step_num=step), "tid": thread}


def kernel(name: str, start_us: int, duration_us: int, *, step: int, device: int = 0) -> Event:
    """Return a kernel of detailed profiling."""
    phase = f"gpu_functions-dev:{device}"
    return {**event(phase, name, start_us, duration_us, step_num=step), "tid": 1}


class DebuggerOutput:
    """Directory with Debugger's output."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def system(
        self, node: str, samples: Iterable[dict[str, Any]], *, minute: int = EPOCH_S, end: str = ""
    ) -> Path:
        """Write a file of samples; `end` follows the last line."""
        path = self.path / "system" / "incremental" / HOUR / f"{minute}.{node}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = b"\n".join(msgspec.json.encode(item) for item in samples)
        path.write_bytes(lines + b"\n" + end.encode())
        return path

    def events(
        self,
        recorder: str,
        events: Sequence[Event],
        *,
        suffix: str = "pythontimeline",
        end_us: int | None = None,
        base_us: int | None = EPOCH_US,
        end: str = "\n]\n",
    ) -> Path:
        """Write a file of framework events; each phase is a separate process, as in Debugger's."""
        ends = [e["ts"] + (e.get("dur") or 0) for e in events if "ts" in e]
        end_us = EPOCH_US + max(ends, default=0) if end_us is None else end_us
        path = self.path / "framework" / "pevents" / HOUR / f"{end_us}_{recorder}_{suffix}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[\n" + ",\n".join(_lines(events, base_us)) + end)
        return path

    def python_profile(
        self,
        recorder: str,
        name: str,
        *,
        window_us: tuple[int, int],
        steps: tuple[str, str] = ("train-9-stepstart", "train-10-stepend"),
    ) -> Path:
        """Return the path of a Python profile; its folder states the time after EPOCH_S."""
        profiler = "pyinstrument" if name.endswith((".json", ".html")) else "cprofile"
        start, end = (EPOCH_US + time for time in window_us)
        folder = f"{steps[0]}-{start}_{steps[1]}-{end}"
        path = self.path / "framework" / "pytorch" / profiler / recorder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def imported(self, run: Path | None = None) -> Run:
        """Import the directory like a user, by default into `run` next to it."""
        return import_into(run or self.path.parent / "run", self.path)


def _lines(events: Sequence[Event], base_us: int | None) -> Iterable[str]:
    def metadata(pid: int, event_name: str, **args: Any) -> str:
        return json.dumps({"name": event_name, "ph": "M", "pid": pid, "args": args})

    if base_us is not None:
        yield metadata(0, "process_name", start_time_since_epoch_in_micros=base_us)
        yield metadata(0, "process_sort_index", sort_index=0)
    pids: dict[str, int] = {}
    for item in events:
        phase = item["phase"]
        if phase not in pids:
            pids[phase] = len(pids) + 1
            yield metadata(pids[phase], "process_name", name=phase)
            yield metadata(pids[phase], "process_sort_index", sort_index=pids[phase])
        yield json.dumps({**{k: v for k, v in item.items() if k != "phase"}, "pid": pids[phase]})


def rows(run: Run, table: str = "spans", **selected: object) -> list[dict[str, object]]:
    """Return the rows of a table that have some values."""
    columns = run.reader.table(table)
    lists = [np.ma.asarray(values).tolist() for values in columns.values()]
    table_rows = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    return [row for row in table_rows if all(row[key] == value for key, value in selected.items())]
