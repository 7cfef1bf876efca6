"""Debug switches that were on during training, and their effect."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.run import Run
from stepscope.schema import SettingsFact


class Variable(NamedTuple):
    """A variable of the environment that is meant for debugging."""

    effect: str
    harmless: frozenset[str] = frozenset()
    """Values that cost nothing; it is on with any other."""


VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": Variable("the host waits for every kernel", frozenset(["0"])),
    "NCCL_BLOCKING_WAIT": Variable("the host waits for every collective", frozenset(["0"])),
    "NCCL_DEBUG": Variable("NCCL writes a log", frozenset(["WARN", "VERSION"])),
    "PYTHONDEVMODE": Variable("Python checks its own use of memory and resources"),
    "PYTHONMALLOC": Variable(
        "Python does not use its fast allocator", frozenset(["default", "pymalloc"])
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Variable("every tensor on a GPU is allocated by the driver"),
    "TORCH_DISTRIBUTED_DEBUG": Variable(
        "ranks compare every collective before they call it", frozenset(["OFF", "INFO"])
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Variable("the host waits for every collective", frozenset(["0"])),
}


def list_debug_switches(run: Run) -> list[str]:
    """Describe the debug switches that were on in a training process, a sentence each.

    Their cost was not measured: a run shows steps with the switch only.
    """
    sentences: dict[str, None] = {}
    for rank in run.ranks:
        for settings in rank.facts(SettingsFact)[-1:]:
            sentences |= dict.fromkeys(_describe_switches(settings))
    return list(sentences)


def _describe_switches(settings: SettingsFact) -> list[str]:
    sentences = []
    if settings.anomaly_detection:
        sentences.append(
            "Anomaly detection of autograd is on: every backward operation is checked for NaN and "
            "keeps the stack of its forward call. Remove torch.autograd.set_detect_anomaly or "
            "detect_anomaly outside of debugging."
        )
    for name, hook in (
        ("sys.settrace", settings.trace_function),
        ("sys.setprofile", settings.profile_function),
    ):
        if hook is not None:
            sentences.append(
                f"{hook} is installed with {name} and runs at every call of a Python function. Run "
                "the job without the debugger, coverage tool or profiler that installed it."
            )
    if settings.traces_allocations:
        sentences.append(
            "tracemalloc records the stack of every allocation of Python. Call tracemalloc.stop() "
            "or unset PYTHONTRACEMALLOC outside of debugging."
        )
    for name, (effect, harmless) in VARIABLES.items():
        value = settings.variables.get(name)
        if value is not None and value not in harmless:
            sentences.append(f"{name}={value} is set: {effect}. Unset it outside of debugging.")
    return sentences
