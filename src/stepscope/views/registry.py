"""Every view by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from stepscope.views.options import (
    CHOICE,
    KERNEL_GROUPS,
    MODULE_TIMES,
    OPERATOR_GROUPS,
    RANGE,
    Make,
    View,
)


def _make(module: str, function: str | None = None) -> Callable[[], Make]:
    """A function of a module of this package, imported when somebody asks for it."""

    def load() -> Make:
        found: Make = getattr(
            importlib.import_module(f"stepscope.views.{module}"), function or module
        )
        return found

    return load


VIEWS: dict[str, View] = {
    "overview": View(_make("overview"), RANGE),
    "recordings": View(_make("recordings")),
    "steps": View(_make("steps"), ("carry_over", *CHOICE, *RANGE)),
    "system": View(_make("system"), RANGE),
    "system-heat": View(_make("system_heat"), ("name", *RANGE)),
    "system-series": View(_make("system_series"), ("name", *RANGE)),
    "input-pipeline": View(_make("input_pipeline"), RANGE),
    "gpu-time": View(_make("gpu_time"), ("carry_over", *CHOICE, *RANGE)),
    "idle": View(_make("idle"), ("carry_over", *CHOICE, *RANGE)),
    "launches": View(_make("launches"), ("bucket_ns", *CHOICE, *RANGE)),
    "gpu-metrics": View(_make("gpu_metrics"), ("bucket_ns", *CHOICE, *RANGE)),
    "activity": View(_make("activity"), ("carry_over", *CHOICE, *RANGE)),
    "operators": View(_make("operators"), ("by", "top", *CHOICE, *RANGE), OPERATOR_GROUPS),
    "kernels": View(_make("kernels"), ("by", "top", "carry_over", *CHOICE, *RANGE), KERNEL_GROUPS),
    "memory": View(_make("memory"), ("name", "top", "bucket_ns", *CHOICE, *RANGE)),
    "modules": View(_make("modules"), ("top", *CHOICE, *RANGE)),
    "modules-flame": View(_make("modules_flame"), ("by", *CHOICE, *RANGE), MODULE_TIMES),
    "roofline": View(_make("roofline"), ("top", "peaks", *CHOICE, *RANGE)),
    "annotations": View(
        _make("annotations", "annotation_ranges"), ("name", "top", "bucket_ns", *CHOICE, *RANGE)
    ),
    "distributed": View(_make("distributed"), ("carry_over", *RANGE)),
    "dashboard": View(_make("dashboard"), RANGE),
    "insights": View(_make("insights"), RANGE),
    "tensors": View(_make("tensors"), ("name", *RANGE)),
    "timeline": View(_make("timeline.tree", "timeline")),
    "timeline-slices": View(
        _make("timeline.slices", "timeline_slices"), ("tracks", "pixels", *RANGE)
    ),
    "timeline-counters": View(
        _make("timeline.counters", "timeline_counters"), ("tracks", "pixels", *RANGE)
    ),
    "timeline-slice": View(
        _make("timeline.slice", "timeline_slice"), ("track", "event"), needs=("track", "event")
    ),
    "timeline-search": View(
        _make("timeline.search", "timeline_search"),
        ("name", "tracks", "top", "around_ns", *RANGE),
        needs=("name",),
    ),
    "timeline-summary": View(
        _make("timeline.summary", "timeline_summary"), ("tracks", "top", *RANGE)
    ),
    "timeline-flame": View(_make("timeline.flame", "timeline_flame"), ("tracks", *RANGE)),
}
"""Every view by name."""
