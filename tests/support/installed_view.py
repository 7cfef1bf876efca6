"""Package with a view of its own, as a user would install it."""

from __future__ import annotations

from pathlib import Path

STEP_NS = 2_500_000
ROW_COUNT = 3
MISSING = "no queue was watched: `stepscope run --queues` watches them"
MODULE = f'''
from typing import Annotated

import msgspec

from stepscope.run import Run
from stepscope.schema import field_label
from stepscope.views import DEFAULTS, Ranged, View, ViewOptions


class Queue(msgspec.Struct):
    name: str
    held_bytes: int
    """Memory of its batches."""
    full_ratio: Annotated[float | None, field_label("full", display="bar")]


class Statistics(msgspec.Struct):
    mean: float
    count: int


class RankQueues(msgspec.Struct):
    rank: int
    depth_curve: list[int]
    missing: str | None


class QueuesView(Ranged, kw_only=True):
    share_of: str
    step_ns: int
    """Time of a mean step."""
    evaluation_ns: int | None
    wait_ns: Statistics
    queues: list[Queue]
    ranks: list[RankQueues]
    missing: str | None


def show_queues(run: Run, options: ViewOptions = DEFAULTS) -> QueuesView:
    """Show the queues of a job."""
    rows = [Queue(f"queue {{n}}", 1024 * n, n / 4 or None) for n in range({ROW_COUNT})]
    return QueuesView(
        share_of="the capacity of a queue",
        step_ns={STEP_NS},
        evaluation_ns=None,
        wait_ns=Statistics({STEP_NS} / 2, 7),
        queues=[] if options.by == "none" else rows,
        ranks=[
            RankQueues(1, list(range(20)), None),
            RankQueues(2, [], "{MISSING}"),
        ],
        missing=None,
    )


QUEUES = View(lambda: show_queues, ("by", "rank", "from_ns", "to_ns"), ("all", "none"))
'''


def write_package(site: Path) -> None:
    """Write a package that offers the view `queues` into a directory of the module path."""
    information = site / "queue_views-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "queue_views.py").write_text(MODULE)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: queue-views\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(
        "[stepscope.views]\nqueues = queue_views:QUEUES\n"
    )
