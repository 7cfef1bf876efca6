"""A recorded run from Python: `stepscope.open(run)`.

Belongs here: what people ask of a run in a notebook, as frames and plain numbers. Does not:
formulas (`analysis`), drawing, anything that writes into a run.

    run            `OpenRun`: what can be asked
    selection      names and times that callers give
    frames         columns that become Arrow, Polars, pandas or NumPy when asked for
    system         samples of the machines
    framework      spans of the job's processes, with rank, phase and step
    distributions  histograms of metrics and of step times
    timelines      steps one after the other
    tables         statistics of phases and spans, use of devices
    loading        how batches were made and waited for
    functions      where Python spent its time
"""

from __future__ import annotations

from pathlib import Path

from stepscope.access.distributions import (
    MetricHistogram,
    MetricsHistogram,
    RankHistogram,
    StepHistogram,
)
from stepscope.access.frames import Frame
from stepscope.access.loading import DataLoaderAnalysis, LoaderWorker
from stepscope.access.run import OpenRun
from stepscope.access.timelines import RankTimeline, StepTimeline
from stepscope.analysis import Heatmap, HeatmapRow, Histogram
from stepscope.cost import JobCost
from stepscope.run import JobStatistics, Run, open_run

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
