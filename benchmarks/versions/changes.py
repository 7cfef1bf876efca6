"""Snapshots of what capture uses of a framework, one per release, and their differences.

A part of this module runs in the interpreter of the jobs, which has the framework: it uses the
standard library, and stepscope's capture.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.spool import FROM_START, NAN_SEARCH_VARIABLE, TENSORS_VARIABLE, TensorPlan

ROOT = Path(__file__).parents[2]
SNAPSHOTS = ROOT / "benchmarks" / "results" / "interfaces"
UNSTABLE_KINDS = {"python_function", "user_annotation"}
"""Categories of events whose names are those of files and lines, or of the job."""


class Framework(NamedTuple):
    """Parts of one framework that a snapshot has."""

    package: str
    modules: tuple[str, ...]
    """Further modules whose functions capture replaces once they are imported."""
    adapters: tuple[str, ...]
    """Modules that wake the adapters in the registry."""
    table: str
    """Name in `internals` of the table of its attributes."""
    record_trace: Callable[[Path], None]
    """Writes a small trace, in Chrome's format."""


def _record_torch(path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


FRAMEWORKS = {
    "PyTorch": Framework(
        package="torch",
        modules=("torch.distributed.checkpoint",),
        adapters=("torch", "torch.distributed.checkpoint"),
        table="PYTORCH",
        record_trace=_record_torch,
    )
}


def take_snapshot(framework: str, python: Path) -> dict[str, Any]:
    """Return what an interpreter's release of a framework offers to capture."""
    plan = TensorPlan(collections=("gradients", "losses"), interval=1)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        TENSORS_VARIABLE: plan.encode(),
        NAN_SEARCH_VARIABLE: FROM_START,
    }
    done = subprocess.run(
        [python, __file__, framework],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    snapshot: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return snapshot


def compare_and_store(framework: str, snapshot: dict[str, Any]) -> str:
    """Store a snapshot; return its differences from the newest one of an older release."""
    path = SNAPSHOTS / f"{framework.lower()}-{snapshot['release']}.json"
    older = [p for p in _stored(framework) if order_of(_release(p)) < order_of(_release(path))]
    text = json.dumps(snapshot, indent=1) + "\n"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if not older:
        return f"no snapshot of a release before {snapshot['release']}"
    before = max(older, key=lambda p: order_of(_release(p)))
    lines = difflib.unified_diff(
        before.read_text().splitlines(), text.splitlines(), before.name, path.name, "", "", 0, ""
    )
    return "\n".join(lines)


def order_of(release: str) -> tuple[list[int], bool, str]:
    """Return a key that sorts releases, also such as `2.9.0a0+gitabc` or `2.7.0.dev20250101`."""
    numbers = re.match(r"\d+(\.\d+)*", release)
    parts = [int(number) for number in numbers[0].split(".")] if numbers else []
    return parts[:3], numbers is not None and numbers[0] == release, release


def _stored(framework: str) -> list[Path]:
    return list(SNAPSHOTS.glob(f"{framework.lower()}-*.json"))


def _release(path: Path) -> str:
    return path.stem.partition("-")[2]


def _describe(framework: Framework) -> dict[str, Any]:
    """Describe the framework of this interpreter."""
    from stepscope.capture import patching
    from stepscope.capture.frameworks import internals, registry

    signatures: dict[str, str | None] = {}

    def note(owner: Any, name: str, make_wrapper: object) -> None:
        path = getattr(owner, "__qualname__", None)
        module = owner.__module__ if path else owner.__name__
        signatures[".".join(filter(None, (module, path, name)))] = _sign(getattr(owner, name))

    def note_function(function: Any, make_wrapper: object) -> None:
        signatures[f"{function.__module__}.{function.__qualname__}"] = _sign(function)

    for module in (framework.package, *framework.modules):
        importlib.import_module(module)
    trace = _describe_trace(framework)
    patching.patch, patching.patch_in_place = note, note_function  # instead of replacing
    for name in framework.adapters:
        adapter, _, function = registry.ADAPTERS[name].partition(":")
        getattr(importlib.import_module(adapter), function)()
    table = getattr(internals, framework.table).table
    attributes = {
        name: next((path for path in internal.paths if internals.read(path) is not None), None)
        for name, internal in table.items()
    }
    package = sys.modules[framework.package]
    return {
        "release": package.__version__.partition("+")[0],
        "internals": attributes,
        "signatures": dict(sorted(signatures.items())),
        "trace": trace,
    }


def _sign(function: Any) -> str | None:
    """Return the parameters of a function, without annotations and without paths in defaults."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not written in Python
        return None
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
    ]
    text = str(inspect.Signature(parameters))
    return re.sub(r" (at 0x[0-9a-f]+|from '[^']*')", "", text)


def _describe_trace(framework: Framework) -> dict[str, Any]:
    """Return the keys of a trace, and of each category of events its names and arguments."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        framework.record_trace(path)
        trace = json.loads(path.read_text())
    names: dict[str, set[str]] = {}
    arguments: dict[str, set[str]] = {}
    for event in trace["traceEvents"]:
        kind = f"{event['ph']} {event.get('cat', '')}".strip()
        stable = kind.partition(" ")[2] not in UNSTABLE_KINDS
        names.setdefault(kind, set()).update([event["name"]] if stable else [])
        arguments.setdefault(kind, set()).update(event.get("args", {}))
    return {
        "keys": sorted(trace),
        "names": {kind: sorted(names[kind]) for kind in sorted(names)},
        "arguments": {kind: sorted(arguments[kind]) for kind in sorted(arguments)},
    }


if __name__ == "__main__":
    print(json.dumps(_describe(FRAMEWORKS[sys.argv[1]])))
