"""Targets of a fix of the data pipeline in a GPU job, which a run with the fix is compared with."""

from __future__ import annotations

from stepscope.diagnosis.attribution import THRESHOLDS
from stepscope.diagnosis.verdict import Suspect, Target, TargetName
from stepscope.quantities import percent

MIN_GPU_RATIO, USUAL_GPU_RATIO = 0.85, 0.90
"""Utilization of GPUs that rarely wait for batches, while they train."""
MAX_DATA_RATIO = THRESHOLDS.data_pipeline
TARGET_RULES = ("DataloaderBottleneck", "LowGPUUtilization")
"""Rules that find such a bottleneck."""


def list_targets(suspect: Suspect, *, uses_gpu: bool) -> list[Target]:
    """List the targets; none where no GPU waits for the data pipeline."""
    if suspect != "data_pipeline" or not uses_gpu:
        return []
    texts: dict[TargetName, str] = {
        "gpu_utilization": f"GPU utilization of {percent(MIN_GPU_RATIO)} to "
        f"{percent(USUAL_GPU_RATIO)} while training",
        "data_loading": f"data loading below {percent(MAX_DATA_RATIO)} of step time",
        "rules": f"no issue found by {' and '.join(TARGET_RULES)}",
    }
    return [Target(name=name, text=text) for name, text in texts.items()]
