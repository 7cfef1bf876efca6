"""How a job was set up, name by name, so that two jobs can be set against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from stepscope.run import Run
from stepscope.schema import OptimizerFact

Group = str
_OF_THE_RECORDING = {"spool", "spool_limit_bytes", "keep_raw", "rules", "price_source"}
"""Options of `stepscope run` that say nothing of the job."""
_OF_THE_FACT = {"fact", "name"}
MOST_ITEMS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that is not the same; None where a run does not say it."""

    group: Group
    name: str
    base: str | None
    other: str | None


def differences(base: Run, other: Run) -> tuple[list[Setting], int]:
    """What is set up differently, and how many things are the same."""
    before, after = configuration(base), configuration(other)
    names = list(dict.fromkeys([*before, *after]))
    unlike = [
        Setting(group=group, name=name, base=before.get(key), other=after.get(key))
        for key in names
        if before.get(key) != after.get(key)
        for group, name in [key]
    ]
    return unlike[:MOST_ITEMS], len(names) - len(unlike)


def configuration(run: Run) -> dict[tuple[Group, str], str]:
    """What a run says of its job, by group and name."""
    info = run.reader.info
    found = {
        ("job", "command"): " ".join(info.command),
        ("job", "directory"): info.working_directory,
        ("job", "ranks"): str(len(run.ranks) or len({t.rank for t in run.traces})),
        ("job", "nodes"): str(len(run.nodes)),
        ("code", "git revision"): info.git_revision or "not known",
        ("versions", "stepscope"): info.stepscope_version,
    }
    found |= _named("options of stepscope run", _without(info.options, _OF_THE_RECORDING))
    for rank in run.ranks[:1]:
        found |= _named("versions", rank.process.versions)
        if rank.loader is not None:
            loader = msgspec.to_builtins(rank.loader)
            found |= _named("data loader", _without(loader, _OF_THE_FACT))
        for optimizer in rank.facts(OptimizerFact)[:1]:
            found |= _named("optimizer", _without(msgspec.to_builtins(optimizer), {"fact"}))
    found |= _hardware(run)
    found |= _recording(run)
    return found


def _hardware(run: Run) -> dict[tuple[Group, str], str]:
    nodes = list(run.nodes.values())
    if not nodes:
        return {}
    node = nodes[0]
    gpus = [str(gpu.get("name", "GPU")) for each in nodes for gpu in each.gpus]
    return _named(
        "hardware",
        {
            "platform": node.platform,
            "CPU": node.cpu_model,
            "cores": node.cores_total,
            "cores available": node.cores_available,
            "memory (bytes)": node.memory_bytes,
            "memory limit (bytes)": node.memory_limit_bytes,
            "GPUs": ", ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)),
            "GPU driver": node.driver_version,
            "instance type": node.instance_type,
        },
    )


def _recording(run: Run) -> dict[tuple[Group, str], str]:
    """What recordings say of where they were made."""
    for trace in run.traces[:1]:
        rows = run.reader.table(
            "devices", ("name",), condition=f"trace = {trace.trace}", traces=[trace.trace]
        )
        names = rows["name"].tolist()
        said = {
            "devices": ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)),
            "ranks": trace.world_size,
            "backend": trace.backend,
        }
        return _named("recording", said)
    return {}


def _without(values: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in left_out}


def _named(group: Group, values: Mapping[str, Any]) -> dict[tuple[Group, str], str]:
    """What is said, as text; nested values by their path."""
    found: dict[tuple[Group, str], str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            inner = _named(group, value)
            found |= {(group, f"{name}.{path}"): text for (_, path), text in inner.items()}
        elif value is not None and value != "":
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            found[group, str(name)] = text
    return found
