"""Time by name of kernel or operator, and settings by name, in two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.run import Run, Trace

NameStatus = Literal["added", "removed", "slower", "faster", "unchanged"]
TimeByName = Mapping[str, tuple[float, float]]
"""Nanoseconds and calls in the mean step, by name."""
UNCHANGED_RATIO = 0.01
"""A name whose time changes by at most this share of itself is unchanged."""


class NameChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the time of one kernel or operator in the mean step."""

    name: str
    status: NameStatus
    base_ns: Annotated[float, schema.field_label("from")]
    other_ns: Annotated[float, schema.field_label("to")]
    change_ns: float
    base_calls: Annotated[float, schema.field_label("calls from", unit="count")]
    other_calls: Annotated[float, schema.field_label("calls to", unit="count")]


class NameChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes by name; those of the rows and `rest_ns` sum to `change_ns`."""

    time_of: str
    base_ns: Annotated[float, schema.field_label("from")]
    other_ns: Annotated[float, schema.field_label("to")]
    change_ns: float
    rows: list[NameChange]
    """Largest changes, in either direction."""
    rest_ns: Annotated[float, schema.field_label("change of other names")]
    """Change of all names that are not listed."""
    rest_count: Annotated[int, schema.field_label("other names")]


def measure_time_by_name(
    traces: Sequence[Trace],
    extents: Sequence[intervals.Intervals],
    *,
    excluded: Sequence[intervals.Intervals],
    table: str,
    time: str,
) -> TimeByName:
    """Measure time and calls in the mean step, by name, of events that start in steps.

    Args:
        traces: traces of one run.
        extents: steps of each trace.
        excluded: intervals of each trace that belong to no step (evaluation).
        table: table of named events.
        time: column with the duration of each event.
    """
    step_count = sum(len(extent.start) for extent in extents)
    totals: dict[str, tuple[int, int]] = {}
    for trace, extent, exclusion in zip(traces, extents, excluded, strict=True):
        columns = trace.columns(table, ("name", "start_ns", time))
        start = columns["start_ns"]
        is_in_step = intervals.contains(intervals.union(extent), start) & ~intervals.contains(
            exclusion, start
        )
        _add_totals(totals, columns, is_in_step.nonzero()[0].astype(np.int64), time)
    return {
        name: (total / step_count, count / step_count) for name, (total, count) in totals.items()
    }


def _add_totals(
    totals: dict[str, tuple[int, int]], columns: analysis.Columns, rows: intervals.Int, time: str
) -> None:
    if not len(rows):
        return
    names = columns["name"]
    groups = analysis.group_rows(names.codes[rows])
    sums, counts = groups.sums(columns[time][rows]).tolist(), groups.counts().tolist()
    codes = names.codes[rows][groups.first].tolist()
    for code, total, count in zip(codes, sums, counts, strict=True):
        name = names.values[code] or ""
        if analysis.is_step(name):  # older profilers record an operator for each step
            name = f"{schema.STEP_PREFIX}*"
        previous_total, previous_count = totals.get(name, (0, 0))
        totals[name] = previous_total + total, previous_count + count


def compare_names(
    base_times: TimeByName, other_times: TimeByName, *, time_of: str, top: int
) -> NameChanges:
    """Compare the time by name of two runs and list the `top` largest changes."""
    names = dict.fromkeys([*base_times, *other_times])
    rows = [_compare_name(name, base_times, other_times) for name in names]
    rows.sort(key=lambda row: (-abs(row.change_ns), row.name))
    base_ns = sum(ns for ns, _ in base_times.values())
    other_ns = sum(ns for ns, _ in other_times.values())
    return NameChanges(
        time_of=time_of,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        rows=rows[:top],
        rest_ns=sum(row.change_ns for row in rows[top:]),
        rest_count=len(rows[top:]),
    )


def _compare_name(name: str, base_times: TimeByName, other_times: TimeByName) -> NameChange:
    base_ns, base_calls = base_times.get(name, (0.0, 0.0))
    other_ns, other_calls = other_times.get(name, (0.0, 0.0))
    change_ns = other_ns - base_ns
    status: NameStatus = "slower" if change_ns > 0 else "faster"
    if abs(change_ns) <= UNCHANGED_RATIO * base_ns:
        status = "unchanged"
    if name not in base_times:
        status = "added"
    if name not in other_times:
        status = "removed"
    return NameChange(
        name=name,
        status=status,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=change_ns,
        base_calls=base_calls,
        other_calls=other_calls,
    )


Group = str
_PROFILER_OPTIONS = {
    "spool", "spool_limit_bytes", "max_run_size_bytes", "keep_raw", "rules", "price_source",
}  # fmt: skip
"""Options of `stepscope run` that do not affect the job."""
_FACT_KEYS = {"fact", "name"}
MAX_SETTINGS = 200


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same; null where a run did not record it."""

    group: Annotated[Group, schema.field_label("of")]
    name: Annotated[str, schema.field_label("setting")]
    base_value: Annotated[str | None, schema.field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[str | None, schema.field_label("to")] = msgspec.field(name="other")


def compare_settings(base_run: Run, other_run: Run) -> tuple[list[SettingChange], int]:
    """Compare the settings of two jobs; returns those that changed, and the number of others."""
    base_settings, other_settings = collect_settings(base_run), collect_settings(other_run)
    keys = list(dict.fromkeys([*base_settings, *other_settings]))
    changes = [
        SettingChange(
            group=group,
            name=name,
            base_value=base_settings.get((group, name)),
            other_value=other_settings.get((group, name)),
        )
        for group, name in keys
        if base_settings.get((group, name)) != other_settings.get((group, name))
    ]
    return changes[:MAX_SETTINGS], len(keys) - len(changes)


def collect_settings(run: Run) -> dict[tuple[Group, str], str]:
    """Collect the recorded settings of a job, by group and name."""
    info = run.reader.info
    settings = {
        ("job", "command"): " ".join(info.command),
        ("job", "directory"): info.working_directory,
        ("job", "ranks"): str(len(run.ranks) or len({t.rank for t in run.traces})),
        ("job", "nodes"): str(len(run.nodes)),
        ("code", "git revision"): info.git_revision or "not known",
        ("versions", "stepscope"): info.stepscope_version,
    }
    settings |= _flatten("options of stepscope run", _exclude(info.options, _PROFILER_OPTIONS))
    for rank in run.ranks[:1]:
        settings |= _flatten("versions", rank.process.versions)
        if rank.loader is not None:
            loader = msgspec.to_builtins(rank.loader)
            settings |= _flatten("data loader", _exclude(loader, _FACT_KEYS))
        for optimizer in rank.facts(schema.OptimizerFact)[:1]:
            settings |= _flatten("optimizer", _exclude(msgspec.to_builtins(optimizer), {"fact"}))
    settings |= _describe_hardware(run)
    settings |= _describe_traces(run)
    return settings


def _describe_hardware(run: Run) -> dict[tuple[Group, str], str]:
    nodes = list(run.nodes.values())
    if not nodes:
        return {}
    first = nodes[0]
    gpus = [str(gpu.get("name", "GPU")) for node in nodes for gpu in node.gpus]
    return _flatten(
        "hardware",
        {
            "platform": first.platform,
            "CPU": first.cpu_model,
            "cores": first.cores_total,
            "cores available": first.cores_available,
            "memory (bytes)": first.memory_bytes,
            "memory limit (bytes)": first.memory_limit_bytes,
            "GPUs": ", ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)),
            "GPU driver": first.driver_version,
            "instance type": first.instance_type,
        },
    )


def _describe_traces(run: Run) -> dict[tuple[Group, str], str]:
    """Describe the devices of the traces of a run."""
    for trace in run.traces[:1]:
        rows = run.reader.table(
            "devices", ("name",), condition=f"trace = {trace.trace}", traces=[trace.trace]
        )
        names = rows["name"].tolist()
        devices = {
            "devices": ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)),
            "ranks": trace.world_size,
            "backend": trace.backend,
        }
        return _flatten("recording", devices)
    return {}


def _exclude(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _flatten(group: Group, values: Mapping[str, Any]) -> dict[tuple[Group, str], str]:
    """Flatten values to text; nested values are named by their path."""
    texts: dict[tuple[Group, str], str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            nested = _flatten(group, value)
            texts |= {(group, f"{name}.{path}"): text for (_, path), text in nested.items()}
        elif value is not None and value != "":
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            texts[group, str(name)] = text
    return texts
