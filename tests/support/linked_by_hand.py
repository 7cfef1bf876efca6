"""Reference implementation of the importer's links, by comparison of every pair of events.

Slow and simple on purpose: it follows the definitions of the tables, where the importer sorts and
searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.kineto_files import BASE_NS, Event

OVERHANG_NS = 1_000
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Row = dict[str, Any]


@dataclass(slots=True)
class Range:
    """Event with its index in the file and, in the end, its links."""

    id: int
    event: Event
    start: int
    end: int
    links: Row = field(default_factory=dict)

    @property
    def track(self) -> tuple[Any, Any]:
        return self.event["pid"], self.event["tid"]

    @property
    def category(self) -> str:
        return str(self.event.get("cat"))

    @property
    def duration(self) -> int:
        return self.end - self.start

    def arg(self, name: str, default: int = -1) -> int:
        value: int = self.event.get("args", {}).get(name, default)
        return value


def nanoseconds(raw: Any) -> int:
    """Convert a time with three decimals."""
    return int(bytes(raw).replace(b".", b""))


def ranges(events: Iterable[Event]) -> list[Range]:
    """Return all events that have a time."""
    timed = []
    for index, event in enumerate(events):
        if "ts" in event:
            start = nanoseconds(event["ts"])
            duration = nanoseconds(event["dur"]) if "dur" in event else 0
            timed.append(Range(index, event, start, start + duration))
    return timed


def outer_first(some: Iterable[Range]) -> list[Range]:
    return sorted(some, key=lambda r: (r.start, -r.end, r.id))


def around(some: list[Range], at: int, track: tuple[Any, Any]) -> Range | None:
    """Return the innermost range that covers a time."""
    covering = [r for r in outer_first(some) if r.track == track and r.start <= at < r.end]
    return covering[-1] if covering else None


def parent_of(child: Range, some: list[Range]) -> Range | None:
    """Return the innermost range around another one.

    It starts before it and ends after it, or at most a microsecond earlier; an empty range is
    around none.
    """
    before = outer_first(r for r in some if r.track == child.track)
    before = before[: [r.id for r in before].index(child.id)]
    fitting = [
        r
        for r in before
        if r.end > r.start
        and (r.end >= child.end or (child.start < r.end and r.end + OVERHANG_NS >= child.end))
    ]
    return fitting[-1] if fitting else None


def id_of(range_: Range | None) -> int | None:
    return None if range_ is None else range_.id


def climb(first: Range, step: Callable[[Range], Range | None]) -> list[Range]:
    """Return a range and all ranges reached from it."""
    path = [first]
    while (following := step(path[-1])) is not None:
        path.append(following)
    return path


class Program:
    """Links of a list of events."""

    def __init__(self, events: list[Event]) -> None:
        all_ranges = ranges(events)
        by_category = {
            name: [r for r in all_ranges if r.category == name] for name in set(_CATEGORIES)
        }
        self.operators = by_category["cpu_op"]
        self.calls = by_category["cuda_runtime"] + by_category["cuda_driver"]
        self.work = [r for name in DEVICE for r in by_category[name]]
        self.python = by_category["python_function"]
        self.annotations = by_category["user_annotation"]
        self.memory = by_category["cpu_instant_event"]
        self.parents = {r.id: parent_of(r, self.operators) for r in self.operators}
        self.python_parents = {r.id: self._python_parent(r) for r in self.python}
        self.launch_of = {r.id: self._launch(r) for r in self.work}
        self.operator_of_call = {r.id: self._operator(r) for r in self.calls}

    def operator_rows(self) -> dict[int, Row]:
        return {r.id: self._operator_row(r) for r in self.operators}

    def call_rows(self) -> dict[int, Row]:
        rows = {}
        for call in self.calls:
            operator = self.operator_of_call[call.id]
            outside = None if operator else id_of(around(self.python, call.start, call.track))
            rows[call.id] = {
                **_times(call),
                "operator": id_of(operator),
                "python": outside,
                "driver": int(call.category == "cuda_driver"),
            }
        return rows

    def work_rows(self) -> dict[int, Row]:
        rows = {}
        for work in self.work:
            launch = self.launch_of[work.id]
            operator = self.operator_of_call[launch.id] if launch else None
            rows[work.id] = {
                **_times(work),
                "launch": id_of(launch),
                "operator": id_of(operator),
                "carry_over": int(self._is_carry_over(work)),
            }
        return rows

    def python_rows(self) -> dict[int, Row]:
        rows = {}
        for call in self.python:
            path = climb(call, lambda r: self.python_parents[r.id])
            modules = [r for r in path if r.arg("Python module id") >= 0]
            rows[call.id] = {
                **_times(call),
                "parent": id_of(self.python_parents[call.id]),
                "module": modules[0].id if modules else None,
            }
        return rows

    def memory_rows(self) -> dict[int, Row]:
        return {
            r.id: {
                "t_ns": BASE_NS + r.start,
                "operator": id_of(around(self.operators, r.start, r.track)),
            }
            for r in self.memory
        }

    def annotation_rows(self) -> dict[int, Row]:
        return {
            r.id: {**_times(r), "python": id_of(around(self.python, r.start, r.track))}
            for r in self.annotations
        }

    # --- links ---------------------------------------------------------------------------------

    def _operator_row(self, operator: Range) -> Row:
        path = climb(operator, lambda r: self.parents[r.id])
        inside = [
            r for r in self.operators if operator in climb(r, lambda inner: self.parents[inner.id])
        ]
        called = [r for r in self.calls if self.operator_of_call[r.id] is operator]
        launched = self._launched_by([operator])
        return {
            **_times(operator),
            "parent": id_of(self.parents[operator.id]),
            "depth": len(path) - 1,
            "python": id_of(around(self.python, operator.start, operator.track)),
            "forward": id_of(self._forward(operator)),
            "runtime_ns": sum(r.duration for r in called) or None,
            "launched_ns": launched or None,
            "launched_below_ns": self._launched_by(inside) - launched or None,
        }

    def _launched_by(self, operators: list[Range]) -> int:
        ids = {r.id for r in operators}
        launches = [(work, self.launch_of[work.id]) for work in self.work]
        return sum(
            work.duration
            for work, launch in launches
            if launch and id_of(self.operator_of_call[launch.id]) in ids
        )

    def _python_parent(self, call: Range) -> Range | None:
        """Return the named caller, on any thread, if it started before; else the range around."""
        caller = self.named_caller(call)
        return caller or parent_of(call, self.python)

    def named_caller(self, call: Range) -> Range | None:
        order = outer_first(r for r in self.python if r.track == call.track)
        before = order[: [r.id for r in order].index(call.id)]
        before += [r for r in self.python if r.track != call.track and r.start < call.start]
        number = call.arg("Python parent id")
        candidates = [r for r in before if r.arg("Python id") == number >= 0]
        return candidates[-1] if candidates else None

    def _operator(self, call: Range) -> Range | None:
        number = call.arg("External id")
        candidates = [r for r in self.operators if r.arg("External id") == number > 0]
        return (
            outer_first(candidates)[-1]
            if candidates
            else around(self.operators, call.start, call.track)
        )

    def _launch(self, work: Range) -> Range | None:
        """Return the last call with its correlation that started before its end, else the first."""
        number = work.arg("correlation")
        same = [r for r in self.calls if r.arg("correlation") == number > 0]
        same.sort(key=lambda r: r.start)
        before = [r for r in same if r.start <= work.end]
        return (before or same[:1] or [None])[-1]

    def _is_carry_over(self, work: Range) -> bool:
        linked = [r for r in self.work if self.launch_of[r.id] and r.track == work.track]
        return self.launch_of[work.id] is None and any(linked) and (
            work.start < min(r.start for r in linked)
        )  # fmt: skip

    def _forward(self, operator: Range) -> Range | None:
        number = operator.arg("Sequence number")
        if number < 0 or operator.arg("Fwd thread id") <= 0:
            return None
        same = [
            r
            for r in self.operators
            if r.arg("Sequence number") == number and r.arg("Fwd thread id") <= 0
        ]
        before = [r for r in same if r.start < operator.start]
        return max(before, key=lambda r: (r.start, r.id), default=None)


_CATEGORIES = (
    "cpu_op",
    "cuda_runtime",
    "cuda_driver",
    *DEVICE,
    "python_function",
    "user_annotation",
    "cpu_instant_event",
)


def _times(range_: Range) -> Row:
    return {"start_ns": BASE_NS + range_.start, "duration_ns": range_.duration}
