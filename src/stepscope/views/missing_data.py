"""Data that a trace does not have, and how to record it."""

from __future__ import annotations

from typing import Literal

from stepscope.run import Trace

Subject = Literal[
    "devices", "launches", "operators", "steps", "shapes", "stacks", "memory", "modules"
]

_WITH_TORCH_PROFILER: dict[Subject, str] = {
    "devices": "record CUDA activities (torch.profiler.ProfilerActivity.CUDA) on a machine with a "
    "GPU",
    "launches": "record CPU and CUDA activities together",
    "operators": "record CPU activities (torch.profiler.ProfilerActivity.CPU)",
    "steps": "call the profiler's step() once per step",
    "shapes": "record with record_shapes=True",
    "stacks": "record with with_stack=True",
    "memory": "record with profile_memory=True",
    "modules": "record with with_stack=True and with_modules=True",
}
"""Advice for users of torch.profiler."""
_CAPTURE = "open a window with `stepscope capture RUN --{}` while the job runs"
_WITH_STEPSCOPE: dict[Subject, str] = {
    "devices": "a window contains device work when the job uses a GPU",
    "launches": "a window contains the calls made while it is open",
    "operators": "a light window has none; open one with `stepscope capture RUN --full`",
    "steps": "mark steps with stepscope.step()",
    "shapes": _CAPTURE.format("shapes"),
    "stacks": _CAPTURE.format("stacks"),
    "memory": _CAPTURE.format("memory"),
    "modules": _CAPTURE.format("modules"),
}
"""Advice for users of `stepscope run`."""
_WIDER_RANGE = "none starts in the selected time range; choose a wider range or the whole run"
_NO_DEVICE_WORK = "the trace has no kernels, copies or sets of a device"
_NO_DEVICE_WORK_IN_LIGHT = (
    "the window is light, which records only device work and runtime calls, and it has none: open "
    "one with `stepscope capture RUN --full` to record operators, or train on a GPU"
)


def advise_recording(subject: Subject, trace: Trace) -> str:
    """Advise how to record what a trace does not have, with the tool that recorded it."""
    if trace.within is not None:
        return _WIDER_RANGE
    return (_WITH_TORCH_PROFILER if trace.process is None else _WITH_STEPSCOPE)[subject]


def explain_missing(sentence: str, subject: Subject, trace: Trace) -> str:
    """Complete a sentence about missing data with the advice how to record it."""
    return f"{sentence}: {advise_recording(subject, trace)}"


def explain_no_device_work(trace: Trace) -> str:
    """Explain why a trace has no kernels, copies or sets of a device."""
    facts = trace.window_facts
    if trace.within is None and facts is not None and facts.depth == "light":
        return _NO_DEVICE_WORK_IN_LIGHT
    return explain_missing(_NO_DEVICE_WORK, "devices", trace)
