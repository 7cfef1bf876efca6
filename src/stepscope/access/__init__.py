"""A recorded run from Python: `stepscope.open(run)`.

Belongs here: figures of a run for notebooks, as frames and plain numbers. Does not: reading of
tables (`run`), formulas (`analysis`), drawing, anything that writes into a run.

    run             `OpenRun`: all methods
    recorded        state of a run, waiting for a growing one, selection
    run_frames      data as frames
    tables          statistics of phases, spans, devices and metrics
    profiles        Python functions; a run in a notebook
    timeline_chart  metrics over time in a notebook, with a selected range
"""

from __future__ import annotations

from pathlib import Path

from stepscope.access.profiles import PythonProfile
from stepscope.access.recorded import open_when_present
from stepscope.access.run import OpenRun
from stepscope.access.tables import MetricHistogram, MetricsHistogram, RankHistogram, StepHistogram
from stepscope.access.timeline_chart import RankTimeline, StepTimeline, TimelineChart
from stepscope.analysis import Heatmap, HeatmapRow, Histogram
from stepscope.cost import JobCost
from stepscope.run import DataLoaderAnalysis, Frame, JobStatistics, LoaderWorker

__all__ = [
    "DataLoaderAnalysis",
    "Frame",
    "Heatmap",
    "HeatmapRow",
    "Histogram",
    "JobCost",
    "JobStatistics",
    "LoaderWorker",
    "MetricHistogram",
    "MetricsHistogram",
    "OpenRun",
    "PythonProfile",
    "RankHistogram",
    "RankTimeline",
    "StepHistogram",
    "StepTimeline",
    "TimelineChart",
    "open",
]


def open(run: str | Path, *, timeout_s: float = 0) -> OpenRun:  # noqa: A001 - `stepscope.open`
    """Open a run, finished or still growing, by its directory or its URL in an object store.

    Computed results do not change: `OpenRun.refresh` reads a growing run again.

    Args:
        run: the directory or URL.
        timeout_s: seconds to wait for the run to appear.

    Raises:
        NotARunError: there is no run at that place.
        NewerSchemaError: a later stepscope wrote it.
        DamagedRunError: its `run.json` makes no sense.
        OSError: the object store in which it lies cannot be reached.
    """
    return OpenRun(open_when_present(run, timeout_s))
