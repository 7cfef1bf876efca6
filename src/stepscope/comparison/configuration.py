"""Configuration of a job, name by name, for the comparison of two jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from stepscope.run import Run
from stepscope.schema import OptimizerFact, field_label

Group = str
_PROFILER_OPTIONS = {
    "spool", "spool_limit_bytes", "max_run_size_bytes", "keep_raw", "rules", "price_source",
}  # fmt: skip
"""Options of `stepscope run` that do not affect the job."""
_FACT_KEYS = {"fact", "name"}
MAX_SETTINGS = 200


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same; null where a run did not record it."""

    group: Annotated[Group, field_label("of")]
    name: Annotated[str, field_label("setting")]
    base_value: Annotated[str | None, field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[str | None, field_label("to")] = msgspec.field(name="other")


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
        for optimizer in rank.facts(OptimizerFact)[:1]:
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
