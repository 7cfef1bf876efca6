"""Data that a trace does not have, and how to record it. An imported trace has what it has."""

from __future__ import annotations

from typing import Literal

from stepscope.run import Trace
from stepscope.schema import DEBUGGER

Subject = Literal[
    "devices", "launches", "operators", "steps", "shapes", "stacks", "memory", "modules"
]

_OF_TORCH_PROFILER: dict[Subject, str] = {
    "devices": "torch.profiler stores it with CUDA activities (ProfilerActivity.CUDA), on a "
    "machine with a GPU",
    "launches": "torch.profiler stores them with CPU and CUDA activities together",
    "operators": "torch.profiler stores them with CPU activities (ProfilerActivity.CPU)",
    "steps": "torch.profiler stores them where the script calls the profiler's step()",
    "shapes": "torch.profiler stores them with record_shapes=True",
    "stacks": "torch.profiler stores them with with_stack=True",
    "memory": "torch.profiler stores it with profile_memory=True",
    "modules": "torch.profiler stores them with with_stack=True and with_modules=True",
}
"""Origin of data in traces of torch.profiler."""
_NOT_BY_DEBUGGER = "SageMaker Debugger wrote none"
_CAPTURE = "while the job runs, open a window with"
_WITH_STEPSCOPE: dict[Subject, str] = {
    "devices": "a window contains device work when the job uses a GPU",
    "launches": "a window contains the calls made while it is open",
    "operators": "a light window has none; open one with `stepscope capture RUN --full`",
    "steps": "mark steps with stepscope.step()",
    "shapes": f"{_CAPTURE} `stepscope capture RUN --shapes`",
    "stacks": f"{_CAPTURE} `stepscope capture RUN --stacks`",
    "memory": f"{_CAPTURE} `stepscope capture RUN --memory`",
    "modules": f"{_CAPTURE} `stepscope capture RUN --modules`",
}
"""Advice for users of `stepscope run`."""
_WIDER_RANGE = "none starts in the selected time range; choose a wider range or the whole run"
_NO_DEVICE_WORK = "the trace has no kernels, copies or sets of a device"
_NO_DEVICE_WORK_IN_LIGHT = (
    "the window is light, which records only device work and runtime calls, and it has none: open "
    "one with `stepscope capture RUN --full` to record operators, or train on a GPU"
)


def advise_recording(subject: Subject, trace: Trace) -> str:
    """Advise how to record what a window of a job does not have; of an imported trace, explain when
    the tool that recorded it stores that."""
    if trace.within is not None:
        return _WIDER_RANGE
    if trace.metadata.get("recorder") == DEBUGGER:
        return _NOT_BY_DEBUGGER
    return (_OF_TORCH_PROFILER if trace.process is None else _WITH_STEPSCOPE)[subject]


def explain_missing(sentence: str, subject: Subject, trace: Trace) -> str:
    """Complete a sentence about missing data with the advice how to record it."""
    return f"{sentence}: {advise_recording(subject, trace)}"


def explain_no_device_work(trace: Trace) -> str:
    """Explain why a trace has no kernels, copies or sets of a device."""
    facts = trace.window_facts
    if trace.within is None and facts is not None and facts.depth == "light":
        return _NO_DEVICE_WORK_IN_LIGHT
    return explain_missing(_NO_DEVICE_WORK, "devices", trace)
