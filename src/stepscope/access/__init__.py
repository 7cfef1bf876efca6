"""A recorded run from Python: `stepscope.open(run)`.

Belongs here: figures of a run for notebooks, as frames and plain numbers. Does not: reading of
tables (`run`), formulas (`analysis`), drawing, anything that writes into a run.

    run            `OpenRun`: the methods
    selection      names and times as callers pass them
    distributions  histograms of metrics and of step times
    timelines      steps one after the other
    tables         statistics of phases and spans, use of devices, Python functions
"""

from __future__ import annotations

from pathlib import Path

from stepscope.access.distributions import (
    MetricHistogram,
    MetricsHistogram,
    RankHistogram,
    StepHistogram,
)
from stepscope.access.run import OpenRun
from stepscope.access.timelines import RankTimeline, StepTimeline
from stepscope.analysis import Heatmap, HeatmapRow, Histogram
from stepscope.cost import JobCost
from stepscope.run import (
    DataLoaderAnalysis,
    Frame,
    JobStatistics,
    LoaderWorker,
    Run,
    open_run,
)

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
    "RankHistogram",
    "RankTimeline",
    "Run",
    "StepHistogram",
    "StepTimeline",
    "open",
]


def open(run: str | Path) -> OpenRun:  # noqa: A001 - it is called `stepscope.open`
    """Opens a run, finished or still growing, by its directory or its URL in an object store.

    What was computed stays as it was: open a run that is still growing again to see more of it.

    Raises:
        NotARunError: there is no run at that place.
        NewerSchemaError: a later stepscope wrote it.
        DamagedRunError: its `run.json` makes no sense.
        OSError: the object store in which it lies cannot be reached.
    """
    return OpenRun(open_run(run))
