"""Registry of views: built-in ones and those of installed packages.

A package offers views through entry points of the group `stepscope.views`, each naming a `View`;
the name of the entry point is the name of the view. They are on every surface: `stepscope show`,
the API and the page, which draws them from the labels of their fields.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from stepscope.entry_points import entry_points
from stepscope.views.options import (
    COUNTER_GROUPS,
    KERNEL_GROUPS,
    MODULE_TIMES,
    OPERATOR_GROUPS,
    RANGE_OPTIONS,
    TRACE_OPTIONS,
    ShowFunction,
    View,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.views"


def _show(module: str, function: str | None = None) -> Callable[[], ShowFunction]:
    """Return a loader of the function `show_MODULE` of a module of this package."""

    def load() -> ShowFunction:
        show: ShowFunction = getattr(
            importlib.import_module(f"stepscope.views.{module}"), function or f"show_{module}"
        )
        return show

    return load


BUILT_IN_VIEWS: dict[str, View] = {
    "overview": View(_show("overview"), RANGE_OPTIONS),
    "configuration": View(_show("configuration")),
    "recordings": View(_show("recordings")),
    "steps": View(
        _show("steps"), ("carry_over", *TRACE_OPTIONS, *RANGE_OPTIONS), is_of_processes=True
    ),
    "system": View(_show("system"), RANGE_OPTIONS),
    "system-heat": View(_show("system_heat"), ("name", *RANGE_OPTIONS)),
    "system-series": View(_show("system_series"), ("name", *RANGE_OPTIONS)),
    "input-pipeline": View(_show("input_pipeline"), RANGE_OPTIONS, is_of_processes=True),
    "gpu-time": View(
        _show("gpu_time"), ("carry_over", "communication", *TRACE_OPTIONS, *RANGE_OPTIONS)
    ),
    "idle": View(_show("idle"), ("carry_over", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "launches": View(_show("launches"), ("bucket_ns", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "gpu-metrics": View(_show("gpu_metrics"), ("bucket_ns", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "activity": View(_show("activity"), ("carry_over", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "operators": View(
        _show("operators"), ("by", "top", *TRACE_OPTIONS, *RANGE_OPTIONS), OPERATOR_GROUPS
    ),
    "kernels": View(
        _show("kernels"),
        ("by", "top", "carry_over", "communication", *TRACE_OPTIONS, *RANGE_OPTIONS),
        KERNEL_GROUPS,
    ),
    "kernel-counters": View(
        _show("kernel_counters"), ("by", "name", "top", *TRACE_OPTIONS), COUNTER_GROUPS
    ),
    "memory": View(_show("memory"), ("name", "top", "bucket_ns", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "modules": View(_show("modules"), ("top", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "modules-flame": View(
        _show("modules_flame"), ("by", *TRACE_OPTIONS, *RANGE_OPTIONS), MODULE_TIMES
    ),
    "roofline": View(_show("roofline"), ("top", "peaks", *TRACE_OPTIONS, *RANGE_OPTIONS)),
    "annotations": View(
        _show("annotations"),
        ("name", "top", "bucket_ns", *TRACE_OPTIONS, *RANGE_OPTIONS),
        is_of_processes=True,
    ),
    "distributed": View(
        _show("distributed"), ("carry_over", "communication", *RANGE_OPTIONS), is_of_processes=True
    ),
    "ranks": View(_show("ranks"), ("mesh", *RANGE_OPTIONS), is_of_processes=True),
    "nodes": View(_show("nodes"), RANGE_OPTIONS, is_of_processes=True),
    "usage": View(_show("usage"), is_of_processes=True),
    "dashboard": View(_show("dashboard"), RANGE_OPTIONS, is_of_processes=True),
    "insights": View(_show("insights"), RANGE_OPTIONS, is_of_processes=True),
    "tensors": View(_show("tensors"), ("name", *RANGE_OPTIONS), is_of_processes=True),
    "tensor": View(
        _show("tensor"), ("name", "rank", *RANGE_OPTIONS), needs=("name",), is_of_processes=True
    ),
    "tensor-heat": View(
        _show("tensor_heat"),
        ("collection", "reduction", "rank", *RANGE_OPTIONS),
        is_of_processes=True,
    ),
    "xgboost": View(
        _show("boosting", "show_xgboost"), ("name", "rank", *RANGE_OPTIONS), is_of_processes=True
    ),
    "timeline": View(_show("timeline.tree", "timeline"), is_of_processes=True),
    "timeline-slices": View(
        _show("timeline.slices", "timeline_slices"), ("tracks", "pixels", *RANGE_OPTIONS)
    ),
    "timeline-counters": View(
        _show("timeline.counters", "timeline_counters"), ("tracks", "pixels", *RANGE_OPTIONS)
    ),
    "timeline-slice": View(
        _show("timeline.slice", "timeline_slice"), ("track", "event"), needs=("track", "event")
    ),
    "timeline-search": View(
        _show("timeline.search", "timeline_search"),
        ("name", "tracks", "top", "around_ns", *RANGE_OPTIONS),
        needs=("name",),
        is_of_processes=True,
    ),
    "timeline-summary": View(
        _show("timeline.summary", "timeline_summary"),
        ("tracks", "top", *RANGE_OPTIONS),
        is_of_processes=True,
    ),
    "timeline-flame": View(
        _show("timeline.flame", "timeline_flame"), ("tracks", *RANGE_OPTIONS), is_of_processes=True
    ),
}


def installed_views() -> dict[str, View]:
    """Return the built-in views and those of installed packages, by name."""
    views = dict(BUILT_IN_VIEWS)
    for offer in entry_points(GROUP):
        view = _load(offer)
        if view is not None:
            views.setdefault(offer.name, view)
    return views


def _load(offer: EntryPoint) -> View | None:
    """Load a view; a broken package costs a warning, not the other views."""
    try:
        view: object = offer.load()
        if not isinstance(view, View):
            raise TypeError(f"{offer.value} is not a stepscope.views.View")
        msgspec.json.schema(view.payload)
    except Exception as error:  # noqa: BLE001 - the code of another package
        warnings.warn(f"The view {offer.name} cannot be loaded: {error}", stacklevel=2)
        return None
    return view


VIEWS = installed_views()
"""Every view by name."""
