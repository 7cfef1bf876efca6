"""Samples of machines thinned out by the store: a day of them is as quickly drawn as a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import numeric_sort_key
from stepscope.run.job_times import job_borders
from stepscope.run.run import Run
from stepscope.run.time_range import RunRange
from stepscope.store import RunReader

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Time cut into equal pieces."""

    start_ns: int
    width_ns: int
    count: int

    @property
    def end_ns(self) -> int:
        """End of the last one."""
        return self.start_ns + self.width_ns * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSeries:
    """One metric of one device, piece by piece; NaN where nothing was sampled."""

    node: str
    metric: str
    device: str
    mean: Float
    least: Float
    largest: Float


def sampled_pieces(run: Run, most: int, *, within: tuple[int, int] | None = None) -> Pieces | None:
    """Pieces over the time of the job, or the range of it that is looked at; None for no time.

    A piece holds two samples at least, so that none is empty for want of luck.

    Args:
        signals: of the run.
        most: pieces.
        within: epoch nanoseconds to keep to.
    """
    begin, end = job_borders(run)
    if isinstance(run, RunRange):
        begin, end = max(begin, run.start_ns), min(end, run.end_ns)
    if within is not None:
        begin, end = max(begin, within[0]), min(end, within[1])
    intervals = [node.sample_interval_ns for node in run.nodes.values()]
    if end <= begin or not intervals:
        return None
    width = max(-(-(end - begin) // most), 2 * max(intervals), 1)
    return Pieces(start_ns=begin, width_ns=width, count=-(-(end - begin) // width))


def piece_series(
    reader: RunReader,
    pieces: Pieces,
    metrics: Sequence[str] = (),
    *,
    nodes: Sequence[str] = (),
    over_devices: bool = False,
) -> list[PieceSeries]:
    """Series by node, metric and device, those without a sample left out.

    Args:
        reader: the run.
        pieces: what time is cut into.
        metrics: which, none for all of them.
        nodes: which, none for all of them.
        over_devices: take the samples of all devices of a node together, as device "".
    """
    where, chosen = ["t_ns >= ?", "t_ns < ?", "isfinite(value)"], [*metrics, *nodes]
    for column, values in (("metric", metrics), ("node", nodes)):
        if values:
            where.append(f"{column} IN ({', '.join('?' for _ in values)})")
    device = "''" if over_devices else "device"
    rows: dict[str, Any] = reader.sql(
        f"SELECT node, metric, {device} AS device, (t_ns - ?) // ? AS piece, avg(value) AS mean, "  # noqa: S608 - fixed names and question marks
        "min(value) AS least, max(value) AS largest FROM metrics "
        f"WHERE {' AND '.join(where)} GROUP BY ALL",
        (pieces.start_ns, pieces.width_ns, pieces.start_ns, pieces.end_ns, *chosen),
        within=(pieces.start_ns, pieces.end_ns),
    )
    if not len(rows["piece"]):
        return []
    keys = list(zip(rows["node"], rows["metric"], rows["device"], strict=True))
    places: dict[tuple[str, str, str], int] = {}
    row = np.array([places.setdefault(key, len(places)) for key in keys])
    piece = rows["piece"].astype(np.int64)
    grids = {}
    for name in ("mean", "least", "largest"):
        grids[name] = np.full((len(places), pieces.count), np.nan)
        grids[name][row, piece] = rows[name]
    found = [
        PieceSeries(
            node=str(node),
            metric=str(metric),
            device=str(each),
            mean=grids["mean"][place],
            least=grids["least"][place],
            largest=grids["largest"][place],
        )
        for (node, metric, each), place in places.items()
    ]
    return sorted(found, key=lambda s: (s.node, s.metric, numeric_sort_key(s.device)))
