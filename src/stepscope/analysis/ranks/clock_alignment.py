"""Clocks of nodes, aligned by collectives that ranks on several of them called together.

No rank ends a collective before the last rank has begun it. With c(t) the nanoseconds that turn a
time t of a node's clock into one of the reference node's clock, every collective bounds it twice:

    c(end) ≥ S - end          S: latest start of any rank, at the earliest
    c(start) ≤ E - start      E: earliest end of any rank, at the latest

Between oscillators c is a line, an offset and a drift. The lines within all bounds are a polygon in
the plane of their values at the first and the last call of the node; only bounds on the convex
hulls cut it (Duda, Harrus, Haddad and Bernard, "Estimating global time in distributed systems",
ICDCS 1987). S and E follow from the bounds of the other nodes, so the polygons are tightened in
rounds until nothing changes; nodes without a common collective are aligned through others.

    estimate    line on which the ranks of a collective end at the same time, by least squares,
                moved to the nearest possible one. Without exact ends, the middle of what is
                possible, as in Cristian's algorithm (https://doi.org/10.1007/BF01784024)
    residual    distance from the estimate to the furthest possible line: no clock that keeps the
                bounds is further away, wherever ranks really end

Only kinds in which every rank waits for all others are of use (`SYNCHRONIZING_KINDS`): the root of
a broadcast may end before another rank has begun. A clock that is set while the job runs leaves no
possible line, and has no estimate.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.arrays.columns import Grouping, group_rows

Float = NDArray[np.float64]

SYNCHRONIZING_KINDS = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
)
"""Kinds of collectives (`classify_collective`) that no rank ends before all have begun."""
MAX_DRIFT_RATIO = 1e-3
"""Two oscillators differ by less: each is within 100 ppm, and NTP changes the rate by at most 500
ppm (https://www.ntp.org/documentation/4.2.8-series/clock/)."""
RESOLUTION_NS = 1000
"""Times are recorded before or after what they are of by at most this."""
MAX_ROUNDS = 64
"""Enough for a chain of as many groups between a node and the reference."""
MIN_FITTED = 4
"""Exact ends that a fit of a line needs."""
MAX_DEVIATIONS = 6
"""Ends further from the line than this many median distances are left out."""
BUCKET_COUNT = 128
"""Of the bounds in one of so many equal parts of a node's time the tightest is used."""


class CollectiveTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of matched collective calls on the clocks of their nodes; one entry per call."""

    node: intervals.Int
    """Index of the node."""
    collective: intervals.Int
    """Number that the calls of one collective have in common."""
    start_ns: intervals.Int
    """Time at which the rank arrived, nanoseconds."""
    end_ns: intervals.Int
    """Time by which the call had ended, -1 if unknown: any later time is right as well, such as
    the end of the step."""
    is_exact: NDArray[np.bool_]
    """True where the call ended at `end_ns`."""

    def __len__(self) -> int:
        return len(self.node)


class NodeClock(msgspec.Struct, frozen=True, kw_only=True):
    """Clock of one node relative to that of the reference node."""

    first_ns: int
    """First call on this node's clock."""
    last_ns: int
    """Last call on this node's clock."""
    reference_ns: int
    """Time of the reference node's clock at `first_ns`, without `first_correction_ns`."""
    corners: Float
    """Possible corrections at the first and at the last call, shape (corners, 2), nanoseconds
    beyond `reference_ns`; their convex hull is possible as well."""
    line: tuple[float, float]
    """Estimated corrections at the first and at the last call."""

    @property
    def offset_ns(self) -> float:
        """This clock minus the reference clock, in the middle of the calls."""
        return self.first_ns - self.reference_ns - sum(self.line) / 2

    @property
    def drift_ratio(self) -> float:
        """Rate of this clock relative to the reference clock, minus 1."""
        first, last = self.line
        length = self.last_ns - self.first_ns
        return length / (length + last - first) - 1 if length else 0.0

    @property
    def residual_ns(self) -> float:
        """Largest possible error of a time between the first and the last call."""
        return float(np.abs(self.corners - self.line).max())

    def residual_at(self, time_ns: intervals.Int) -> Float:
        """Largest possible error of times of this clock, also outside of the calls."""
        share = self._share(time_ns)
        first, last = self.line
        possible = self._values(share)
        estimate = (1 - share) * first + share * last
        return np.asarray(
            np.maximum(possible.max(axis=-1) - estimate, estimate - possible.min(axis=-1))
        )

    def to_reference(self, time_ns: intervals.Int) -> intervals.Int:
        """Convert times of this clock to the reference clock, nanoseconds."""
        share = self._share(time_ns)
        first, last = self.line
        correction = (1 - share) * first + share * last
        shift = self.reference_ns - self.first_ns
        return np.asarray(time_ns + shift + np.rint(correction).astype(np.int64))

    def _share(self, time_ns: intervals.Int) -> Float:
        length = max(1, self.last_ns - self.first_ns)
        return (np.asarray(time_ns, dtype=np.int64) - self.first_ns) / length

    def _values(self, share: Float) -> Float:
        return _evaluate(self.corners, share)


def align_clocks(calls: CollectiveTimes, *, reference: int = 0) -> dict[int, NodeClock | None]:
    """Align the clocks of nodes by matched collectives.

    Args:
        calls: calls of all ranks; those of the same node share a clock.
        reference: node whose clock the others are compared with.

    Returns:
        Clock by node, of the nodes with calls. None for one whose clock the calls do not bound, or
        that kept no constant rate.
    """
    if not len(calls):
        return {}
    nodes, node = np.unique(calls.node, return_inverse=True)
    rows = [np.flatnonzero(node == index) for index in range(len(nodes))]
    has_end = calls.end_ns >= 0
    origin = np.array([calls.start_ns[members].min() for members in rows])
    # Relative to the first call of the node, times are small enough for floats.
    start = (calls.start_ns - origin[node]).astype(np.float64)
    end = np.where(has_end, (calls.end_ns - origin[node]).astype(np.float64), np.nan)
    length = np.array(
        [np.fmax(start[members].max(), np.nan_to_num(end[members]).max()) for members in rows]
    )
    length = np.maximum(length, 1.0)
    anchor = nodes.tolist().index(reference) if reference in nodes else 0
    corners: list[Float | None] = [None] * len(nodes)
    corners[anchor] = np.zeros((1, 2))
    broken: set[int] = set()
    collective = group_rows(calls.collective)
    for _ in range(MAX_ROUNDS):
        low, high = np.full(len(calls), -np.inf), np.full(len(calls), np.inf)
        for index, members in enumerate(rows):
            polygon = corners[index]
            if polygon is not None:
                low[members] = start[members] + _evaluate(
                    polygon, start[members] / length[index]
                ).min(axis=1)
                high[members] = end[members] + _evaluate(polygon, end[members] / length[index]).max(
                    axis=1
                )
        latest_start = collective.maxima(low)[collective.group]
        earliest_end = collective.minima(np.where(has_end, high, np.inf))[collective.group]
        changed = False
        for index, members in enumerate(rows):
            if index == anchor or index in broken:
                continue
            ended = members[has_end[members]]
            polygon = _bound_line(
                (end[ended], latest_start[ended] - end[ended] - RESOLUTION_NS),
                (start[members], earliest_end[members] - start[members] + RESOLUTION_NS),
                length[index],
            )
            if polygon is not None and not len(polygon):
                broken.add(index)
                corners[index] = None
                changed = True
            elif polygon is not None:
                changed |= _has_changed(corners[index], polygon)
                corners[index] = polygon
        if not changed:
            break
    exact = np.where(calls.is_exact, end, np.nan)
    lines = _estimate_lines(corners, rows, exact, length, collective, anchor)
    return {
        int(name): None
        if (polygon := corners[index]) is None
        else NodeClock(
            first_ns=int(origin[index]),
            last_ns=int(origin[index] + length[index]),
            reference_ns=int(origin[anchor]),
            corners=polygon,
            line=tuple(lines[index].tolist()),
        )
        for index, name in enumerate(nodes.tolist())
    }


def _estimate_lines(  # noqa: PLR0917
    corners: list[Float | None],
    rows: list[intervals.Int],
    end: Float,
    length: Float,
    collective: Grouping,
    anchor: int,
) -> list[Float]:
    """Estimate the line of each node, on which the ends of a collective are alike on all ranks.

    With x the values of all lines at both ends, W x + end are the ends on the reference clock. The
    sum of squares of their distances to the mean of their collective is least for

        (W'W - G' N G) x = -W' (end - mean end)

    G: sum of W over the calls of each collective, N: 1 / number of these calls.
    """
    middle = [
        np.zeros(2) if polygon is None else (polygon.min(axis=0) + polygon.max(axis=0)) / 2
        for polygon in corners
    ]
    node = np.empty(len(end), dtype=np.int64)
    for index, members in enumerate(rows):
        node[members] = index
    aligned = np.array([polygon is not None for polygon in corners])
    usable = ~np.isnan(end) & aligned[node]
    if not usable.any():
        return middle
    values = np.array(middle)
    for _ in range(2):  # the second time without ends that are far from the others
        values, distance = _solve_lines(
            node, end / length[node], end, collective, anchor, usable, len(rows)
        )
        if not len(distance):
            return middle
        usable[usable] = distance <= MAX_DEVIATIONS * np.median(distance) + RESOLUTION_NS
    counts = np.bincount(node[usable], minlength=len(corners))
    return [
        _move_inside(polygon, values[index])
        if polygon is not None and index != anchor and counts[index] >= MIN_FITTED
        else middle[index]
        for index, polygon in enumerate(corners)
    ]


def _solve_lines(  # noqa: PLR0917
    node: intervals.Int,
    share: Float,
    end: Float,
    collective: Grouping,
    anchor: int,
    usable: NDArray[np.bool_],
    node_count: int,
) -> tuple[Float, Float]:
    """Solve the normal equations; see `_estimate_lines`.

    Returns:
        Lines by node, and the distance of each usable call from the mean of its collective.
    """
    node, share, end = node[usable], share[usable], end[usable]
    group = group_rows(collective.group[usable])
    weights = np.stack([1 - share, share], axis=1)
    sums = np.zeros((len(group), 2 * node_count))
    normal = np.zeros((2 * node_count, 2 * node_count))
    right = np.zeros(2 * node_count)
    count = group.counts()
    offset = end - (group.float_sums(end) / count)[group.group]
    for column in range(2):
        np.add.at(sums, (group.group, 2 * node + column), weights[:, column])
        right += np.bincount(
            2 * node + column, weights=weights[:, column] * offset, minlength=2 * node_count
        )
        for row in range(2):
            product = weights[:, column] * weights[:, row]
            square = np.bincount(node, weights=product, minlength=node_count)
            normal[column::2, row::2] += np.diag(square)
    normal -= sums.T @ (sums / count[:, None])
    free = np.flatnonzero(np.arange(2 * node_count) // 2 != anchor)
    lines = np.zeros(2 * node_count)
    lines[free] = np.linalg.lstsq(normal[np.ix_(free, free)], -right[free], rcond=None)[0]
    aligned = end + (weights * lines.reshape(-1, 2)[node]).sum(axis=1)
    mean = (group.float_sums(aligned) / count)[group.group]
    return lines.reshape(-1, 2), np.abs(aligned - mean)


def _move_inside(polygon: Float, point: Float) -> Float:
    """Return the point of a convex polygon nearest to a point."""
    edge = np.roll(polygon, -1, axis=0) - polygon
    offset = point - polygon
    cross = edge[:, 0] * offset[:, 1] - edge[:, 1] * offset[:, 0]
    if len(polygon) > 2 and (cross >= 0).all():  # corners are counterclockwise
        return point
    square = np.maximum((edge**2).sum(axis=1), 1e-12)
    share = np.clip((edge * offset).sum(axis=1) / square, 0, 1)
    nearest = polygon + share[:, None] * edge
    result: Float = nearest[((nearest - point) ** 2).sum(axis=1).argmin()]
    return result


def _evaluate(corners: Float, share: Float) -> Float:
    """Evaluate lines, given by their values at 0 and 1; shape (*share, corners)."""
    share = np.asarray(share)[..., None]
    values: Float = (1 - share) * corners[:, 0] + share * corners[:, 1]
    return values


def _has_changed(before: Float | None, after: Float) -> bool:
    if before is None:
        return True
    edges = [np.concatenate([p.min(axis=0), p.max(axis=0)]) for p in (before, after)]
    return bool(np.abs(edges[0] - edges[1]).max() > RESOLUTION_NS)


def _bound_line(
    lower: tuple[Float, Float], upper: tuple[Float, Float], length: float
) -> Float | None:
    """Bound a line by its values at 0 and at `length`.

    Args:
        lower: times, and values that the line is not below.
        upper: times, and values that the line is not above.
        length: duration between the two values.

    Returns:
        Corners of the polygon of possible pairs of values, shape (corners, 2), none if no line is
        possible; None if there is no bound above or below.
    """
    lower, upper = ((t[np.isfinite(v)], v[np.isfinite(v)]) for t, v in (lower, upper))
    if not len(lower[0]) or not len(upper[0]):
        return None
    change = MAX_DRIFT_RATIO * length
    low, high = lower[1].max() - change, upper[1].min() + change
    polygon = np.array([[low, low], [high, low], [high, high], [low, high]])
    if low > high:
        return np.empty((0, 2))
    for sign in (1.0, -1.0):  # |last - first| <= change
        polygon = _clip(polygon, np.array([-sign, sign]), -change)
    for sign, (times, values) in ((1.0, lower), (-1.0, upper)):
        for time, value in _find_hull(times, sign * values, length):
            share = time / length
            polygon = _clip(polygon, sign * np.array([1 - share, share]), value)
    return polygon


def _find_hull(times: Float, values: Float, length: float) -> list[tuple[float, float]]:
    """Find the points on the upper convex hull, the largest of each bucket of time at most."""
    bucket = np.minimum(times / length * BUCKET_COUNT, BUCKET_COUNT - 1).astype(np.int64)
    order = np.lexsort((values, bucket))
    largest = order[np.diff(bucket[order], append=-1) != 0]
    points = sorted(zip(times[largest].tolist(), values[largest].tolist(), strict=True))
    hull: list[tuple[float, float]] = []
    for point in points:  # Andrew's monotone chain
        while len(hull) > 1 and _turns_left(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _turns_left(
    first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]
) -> bool:
    run, rise = second[0] - first[0], second[1] - first[1]
    return run * (third[1] - first[1]) - rise * (third[0] - first[0]) >= 0


def _clip(polygon: Float, normal: Float, limit: float) -> Float:
    """Clip a convex polygon to the half plane normal · point ≥ limit (Sutherland-Hodgman)."""
    if not len(polygon):
        return polygon
    inside = polygon @ normal - limit
    if (inside >= 0).all():
        return polygon
    following, inside_following = np.roll(polygon, -1, axis=0), np.roll(inside, -1)
    corners = []
    for index in range(len(polygon)):
        if inside[index] >= 0:
            corners.append(polygon[index])
        if (inside[index] >= 0) != (inside_following[index] >= 0):
            share = inside[index] / (inside[index] - inside_following[index])
            corners.append(polygon[index] + share * (following[index] - polygon[index]))
    return np.array(corners).reshape(-1, 2)
