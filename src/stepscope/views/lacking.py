"""What a recording lacks, and how to make one that has it."""

from __future__ import annotations

from typing import Literal

from stepscope.run import Trace

Lacking = Literal[
    "devices", "launches", "operators", "steps", "shapes", "stacks", "memory", "modules"
]

_BY_PROFILER: dict[Lacking, str] = {
    "devices": "record it with CUDA activities (torch.profiler.ProfilerActivity.CUDA) on a machine "
    "with a GPU",
    "launches": "record it with CPU and CUDA activities together",
    "operators": "record it with CPU activities (torch.profiler.ProfilerActivity.CPU)",
    "steps": "call the profiler's step() once per step",
    "shapes": "record it with record_shapes=True",
    "stacks": "record it with with_stack=True",
    "memory": "record it with profile_memory=True",
    "modules": "record it with with_stack=True and with_modules=True",
}
"""For those who use torch.profiler."""
_ASKED = "open a window with `stepscope capture RUN --{}` while the job runs"
_BY_STEPSCOPE: dict[Lacking, str] = {
    "devices": "a window holds them where the job uses a GPU",
    "launches": "a window holds the calls that were made while it was open",
    "operators": "a light window holds none, open one with `stepscope capture RUN --full`",
    "steps": "mark them with stepscope.step()",
    "shapes": _ASKED.format("shapes"),
    "stacks": _ASKED.format("stacks"),
    "memory": _ASKED.format("memory"),
    "modules": _ASKED.format("modules"),
}
"""For those whose job stepscope watches."""
_WIDER = "none begins in this range of time; choose a wider one, or look at the whole run"
_NO_DEVICE_WORK = "no kernel, copy or set of a device is in this recording"
_NO_DEVICE_WORK_IN_LIGHT = (
    "a light window holds nothing but kernels, copies and runtime calls of devices, and here are "
    "none: open one with `stepscope capture RUN --full` for operators, or train on a GPU"
)


def how_to_get(lacking: Lacking, trace: Trace) -> str:
    """How to make a recording that has what this one lacks, in the words of what made it."""
    if trace.within is not None:
        return _WIDER
    return (_BY_PROFILER if trace.process is None else _BY_STEPSCOPE)[lacking]


def no_device_work(trace: Trace) -> str:
    """Why there is no kernel, copy or set of a device."""
    if (
        trace.within is None
        and trace.window_facts is not None
        and trace.window_facts.depth == "light"
    ):
        return _NO_DEVICE_WORK_IN_LIGHT
    return f"{_NO_DEVICE_WORK}: {how_to_get('devices', trace)}"
