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
from stepscope.views import options

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.views"


def _show(target: str) -> Callable[[], options.ShowFunction]:
    """Return a loader of `module:function` of this package."""

    def load() -> options.ShowFunction:
        module, _, function = target.partition(":")
        show: options.ShowFunction = getattr(
            importlib.import_module(f"stepscope.views.{module}"), function
        )
        return show

    return load


_VIEWS: dict[str, options.View] = {
    "overview": options.View(
        _show("job.overview:show_overview"), options.RANGE_OPTIONS, table="summary"
    ),
    "job-time": options.View(_show("job.job_time:show_job_time"), table="classes"),
    "configuration": options.View(_show("job.overview:show_configuration"), table="summary"),
    "recordings": options.View(_show("job.recordings:show_recordings")),
    "quality": options.View(
        _show("trace_data:show_quality"), options.TRACE_OPTIONS, table="checks"
    ),
    "steps": options.View(
        _show("steps.steps:show_steps"),
        ("carry_over", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        is_of_processes=True,
    ),
    "step-series": options.View(
        _show("steps.step_series:show_step_series"),
        ("carry_over", "pixels", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="outliers",
    ),
    "critical-path": options.View(
        _show("steps.critical_path:show_critical_path"),
        ("top", *options.TRACE_OPTIONS),
        table="paths.activities",
    ),
    "what-if": options.View(
        _show("steps.critical_path:show_what_if"),
        ("name", *options.TRACE_OPTIONS),
        table="recordings.fixes",
    ),
    "system": options.View(
        _show("system:show_system"), options.RANGE_OPTIONS, table="nodes.metrics"
    ),
    "host-memory": options.View(
        _show("job.host_memory:show_host_memory"), options.RANGE_OPTIONS, table="nodes.processes"
    ),
    "system-heat": options.View(
        _show("system:show_system_heat"), ("name", *options.RANGE_OPTIONS), table="nodes.rows"
    ),
    "system-series": options.View(
        _show("system:show_system_series"), ("name", *options.RANGE_OPTIONS), table="nodes.series"
    ),
    "input-pipeline": options.View(
        _show("steps.input_pipeline:show_input_pipeline"),
        options.RANGE_OPTIONS,
        is_of_processes=True,
        table="ranks",
    ),
    "gpu-time": options.View(
        _show("devices.gpu_time:show_gpu_time"),
        ("carry_over", "communication", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="traces",
    ),
    "idle": options.View(
        _show("devices.gpu_time:show_idle"),
        ("carry_over", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="streams",
    ),
    "launches": options.View(
        _show("devices.kernels:show_launches"),
        ("bucket_ns", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="operators",
    ),
    "gpu-metrics": options.View(
        _show("devices.gpu_metrics:show_gpu_metrics"),
        ("bucket_ns", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="devices",
    ),
    "activity": options.View(
        _show("devices.gpu_time:show_activity"),
        ("carry_over", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="activities",
    ),
    "operators": options.View(
        _show("operators.operators:show_operators"),
        ("by", "top", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        options.OPERATOR_GROUPS,
    ),
    "kernels": options.View(
        _show("devices.kernels:show_kernels"),
        (
            "by",
            "top",
            "carry_over",
            "communication",
            *options.TRACE_OPTIONS,
            *options.RANGE_OPTIONS,
        ),
        options.KERNEL_GROUPS,
    ),
    "kernel-counters": options.View(
        _show("devices.kernels:show_kernel_counters"),
        ("by", "name", "top", *options.TRACE_OPTIONS),
        options.COUNTER_GROUPS,
        table="counters.kernels",
    ),
    "memory": options.View(
        _show("devices.memory:show_memory"),
        ("name", "top", "bucket_ns", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="devices",
    ),
    "memory-snapshot": options.View(
        _show("devices.memory_snapshot:show_memory_snapshots"),
        ("rank", "top", "bucket_ns"),
        table="snapshots.peak.holders",
    ),
    "modules": options.View(
        _show("operators.modules:show_modules"),
        ("top", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
    ),
    "modules-flame": options.View(
        _show("operators.modules:show_modules_flame"),
        ("by", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        options.MODULE_TIMES,
        table="roots.children",
    ),
    "roofline": options.View(
        _show("operators.roofline:show_roofline"),
        ("top", "peaks", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        table="groups",
    ),
    "compilations": options.View(
        _show("operators.compilations:show_compilations"), ("rank", "top")
    ),
    "annotations": options.View(
        _show("operators.operators:show_annotations"),
        ("name", "top", "bucket_ns", *options.TRACE_OPTIONS, *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="sources.annotations",
    ),
    "distributed": options.View(
        _show("steps.distributed:show_distributed"),
        ("carry_over", "communication", *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="windows.collectives",
    ),
    "ranks": options.View(
        _show("steps.ranks:show_ranks"), ("mesh", *options.RANGE_OPTIONS), is_of_processes=True
    ),
    "nodes": options.View(
        _show("steps.ranks:show_nodes"), options.RANGE_OPTIONS, is_of_processes=True
    ),
    "usage": options.View(
        _show("profiling_report.usage:show_usage"), is_of_processes=True, table="framework.parts"
    ),
    "dashboard": options.View(
        _show("job.dashboard:show_dashboard"),
        options.RANGE_OPTIONS,
        is_of_processes=True,
        table="all_kernels",
    ),
    "insights": options.View(
        _show("job.insights:show_insights"),
        options.RANGE_OPTIONS,
        is_of_processes=True,
        table="rules",
    ),
    "tensors": options.View(
        _show("tensors.tensors:show_tensors"),
        ("name", *options.RANGE_OPTIONS),
        is_of_processes=True,
    ),
    "tensor": options.View(
        _show("tensors.tensor:show_tensor"),
        ("name", "rank", *options.RANGE_OPTIONS),
        needs=("name",),
        is_of_processes=True,
        table="histogram.bins",
    ),
    "tensor-heat": options.View(
        _show("tensors.tensor:show_tensor_heat"),
        ("collection", "reduction", "rank", *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="rows",
    ),
    "xgboost": options.View(
        _show("tensors.boosting:show_xgboost"),
        ("name", "rank", *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="metrics",
    ),
    "timeline": options.View(
        _show("timeline.tree:timeline"), is_of_processes=True, table="groups.tracks"
    ),
    "timeline-slices": options.View(
        _show("timeline.window:timeline_slices"),
        ("tracks", "pixels", *options.RANGE_OPTIONS),
        table="tracks",
    ),
    "timeline-counters": options.View(
        _show("timeline.window:timeline_counters"),
        ("tracks", "pixels", *options.RANGE_OPTIONS),
        table="series",
    ),
    "timeline-slice": options.View(
        _show("timeline.window:timeline_slice"),
        ("track", "event"),
        needs=("track", "event"),
        table="links",
    ),
    "timeline-search": options.View(
        _show("timeline.window:timeline_search"),
        ("name", "tracks", "top", "around_ns", *options.RANGE_OPTIONS),
        needs=("name",),
        is_of_processes=True,
        table="matches",
    ),
    "timeline-summary": options.View(
        _show("timeline.window:timeline_summary"),
        ("tracks", "top", *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="tracks.names",
    ),
    "timeline-flame": options.View(
        _show("timeline.window:timeline_flame"),
        ("tracks", *options.RANGE_OPTIONS),
        is_of_processes=True,
        table="roots.children",
    ),
}

BUILT_IN_VIEWS = {
    name: msgspec.structs.replace(view, stored_as=name) for name, view in _VIEWS.items()
}


def installed_views() -> dict[str, options.View]:
    """Return the built-in views and those of installed packages, by name."""
    views = dict(BUILT_IN_VIEWS)
    for offer in entry_points(GROUP):
        view = _load(offer)
        if view is not None:
            views.setdefault(offer.name, view)
    return views


def _load(offer: EntryPoint) -> options.View | None:
    """Load a view; a broken package costs a warning, not the other views."""
    try:
        view: object = offer.load()
        if not isinstance(view, options.View):
            raise TypeError(f"{offer.value} is not a stepscope.views.View")
        msgspec.json.schema(view.payload)
    except Exception as error:  # noqa: BLE001 - the code of another package
        warnings.warn(f"The view {offer.name} cannot be loaded: {error}", stacklevel=2)
        return None
    return view


VIEWS = installed_views()
"""Every view by name."""
