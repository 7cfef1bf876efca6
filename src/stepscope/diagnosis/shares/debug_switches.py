"""Debug switches that were on during training, their effect and their cost.

Anomaly detection of autograd does two things, and its cost follows from their counts:

    cost = nodes x time to capture a stack + NaN checks

Every node of the graph captures and formats the Python stack of its forward operation. The number
of nodes and the time of the NaN checks in backward passes are those of a profiler window; the time
of a capture was measured in the process, and is scaled to the depth of stacks in forward passes.

The other switches make one kind of work slower, by an amount that a run with the switch cannot
tell. They cost less than all of that work, so they are no cause where it is no bottleneck.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.diagnosis.verdict import Suspect
from stepscope.run import Rank, Run


class Variable(NamedTuple):
    """A variable of the environment that is meant for debugging."""

    effect: str
    slows: Suspect
    """Suspect that has the time of the work that gets slower."""
    harmless: frozenset[str] = frozenset()
    """Values that cost nothing; it is on with any other."""


VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": Variable(
        "the host waits for every kernel", "framework_overhead", frozenset(["0"])
    ),
    "NCCL_BLOCKING_WAIT": Variable(
        "the host waits for every collective", "communication", frozenset(["0"])
    ),
    "NCCL_DEBUG": Variable(
        "NCCL writes a log", "communication", frozenset(["WARN", "VERSION", "INFO"])
    ),
    "PYTHONDEVMODE": Variable(
        "Python checks its own use of memory and resources", "framework_overhead"
    ),
    "PYTHONMALLOC": Variable(
        "Python does not use its fast allocator",
        "framework_overhead",
        frozenset(["default", "pymalloc"]),
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Variable(
        "every tensor on a GPU is allocated by the driver", "framework_overhead"
    ),
    "TORCH_DISTRIBUTED_DEBUG": Variable(
        "ranks compare every collective before they call it",
        "communication",
        frozenset(["OFF", "INFO"]),
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Variable(
        "the host waits for every collective", "communication", frozenset(["0"])
    ),
}


class DebugSwitch(NamedTuple):
    """A debug switch that was on."""

    name: str
    slows: Suspect
    text: str
    """Effect, and the way to turn it off."""
    is_priced: bool = False
    """True if its cost is known apart from the work that it makes slower."""


RUN_EAGERLY = DebugSwitch(
    "run_eagerly",
    "framework_overhead",
    "run_eagerly=True is set in Model.compile: Python calls the operators of each step one by one, "
    "where a compiled function would call them at once. Remove it outside of debugging.",
)


def list_debug_switches(run: Run) -> list[DebugSwitch]:
    """List the debug switches that were on in a training process for at least half of its measured
    steps."""
    switches: dict[DebugSwitch, None] = {}
    for rank in run.ranks:
        settings, counts = rank.facts(schema.SettingsFact), count_steps_with_settings(rank)
        is_priced = measure_anomaly_detection_ns(rank) is not None
        is_intermittent = len({fact.profiles_operators for fact in settings}) > 1
        if is_intermittent and rank.profiler_lines:  # the script starts and stops it in the loop
            settings = [
                msgspec.structs.replace(fact, profiles_operators=False) for fact in settings
            ]
        steps_with: Counter[DebugSwitch] = Counter()
        for fact, count in zip(settings, counts, strict=True):
            for switch in _list_switches(fact, is_priced=is_priced):
                steps_with[switch] += count
        for eager in rank.facts(schema.KerasSettingsFact)[-1:]:
            switches |= {RUN_EAGERLY: None} if eager.run_eagerly else {}
        half = sum(counts) / 2
        switches |= {switch: None for switch, count in steps_with.items() if count >= half > 0}
    return list(switches)


def count_steps_with_settings(rank: Rank) -> list[int]:
    """Count the measured steps of a rank for each of its settings, which hold until the next."""
    settings = rank.facts(schema.SettingsFact)
    if not settings:
        return []
    spans, steps = rank.spans, rank.steps
    updates = spans.of("optimizer")
    updates = updates.take(updates.end <= (steps.end[0] if len(steps) else 0))
    earlier_count = len(updates) - len(updates.on_thread(steps.thread))
    # The process has counted the steps of its other threads as well.
    numbers = steps.number[steps.measured()] + earlier_count
    row = np.searchsorted([fact.step_count for fact in settings], numbers, side="right") - 1
    counts: list[int] = np.bincount(np.maximum(row, 0), minlength=len(settings)).tolist()
    return counts


def measure_anomaly_detection_ns(rank: Rank) -> float | None:
    """Measure the cost of anomaly detection per step of a rank; None where it was off, or where
    what it did was not recorded."""
    settings, profile = rank.facts(schema.SettingsFact)[-1:], rank.run.compute_profile
    if not settings or not settings[0].anomaly_detection or profile is None:
        return None
    capture = settings[0].stack_capture
    if capture is None:
        return None
    depth = analysis.measure_stack_depth(rank.spans, rank.run.stack_samples(rank.process))
    extra_frames = max(0.0, depth - capture.depth) if depth is not None else 0.0
    capture_ns = capture.capture_ns + extra_frames * capture.frame_ns
    return profile.node_count_per_step * capture_ns + profile.nan_check_ns_per_step


def _list_switches(settings: schema.SettingsFact, *, is_priced: bool) -> list[DebugSwitch]:
    switches = []
    if settings.anomaly_detection:
        text = (
            "Anomaly detection of autograd is on: every backward operation is checked for NaN and "
            "keeps the stack of its forward call. Remove torch.autograd.set_detect_anomaly or "
            "detect_anomaly outside of debugging."
        )
        # Without a price, its time is that of the operators in which it happens.
        slows: Suspect = "framework_overhead" if is_priced else "model"
        switches.append(DebugSwitch("anomaly detection", slows, text, is_priced))
    for name, hook in (
        ("sys.settrace", settings.trace_function),
        ("sys.setprofile", settings.profile_function),
    ):
        if hook is not None:
            text = (
                f"{hook} is installed with {name} and runs at every call of a Python function. Run "
                "the job without the debugger, coverage tool or profiler that installed it."
            )
            switches.append(DebugSwitch(hook, "framework_overhead", text))
    if settings.profiles_operators:
        text = (
            "PyTorch's profiler records every operator of the job. Profile a few steps only: "
            "torch.profiler.schedule ends it after them."
        )
        switches.append(DebugSwitch("PyTorch's profiler", "framework_overhead", text))
    if settings.traces_allocations:
        text = (
            "tracemalloc records the stack of every allocation of Python. Call tracemalloc.stop() "
            "or unset PYTHONTRACEMALLOC outside of debugging."
        )
        switches.append(DebugSwitch("tracemalloc", "framework_overhead", text))
    for name, variable in VARIABLES.items():
        value = settings.variables.get(name)
        if value is not None and value not in variable.harmless:
            text = f"{name}={value} is set: {variable.effect}. Unset it outside of debugging."
            switches.append(DebugSwitch(name, variable.slows, text))
    return switches
