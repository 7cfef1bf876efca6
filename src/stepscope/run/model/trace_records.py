"""Facts about all traces of a run: quality issues, signs of devices, kernels of collectives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, schema, store

_SIGNS_OF_RANKS = """
    SELECT (SELECT coalesce(max(world_size), 0) FROM traces) AS world,
    (SELECT count(DISTINCT rank) FROM traces) AS ranks,
    (SELECT coalesce(max(size), 0) FROM process_groups) AS groups,
    (SELECT coalesce(max(n), 0) FROM
        (SELECT count(DISTINCT device) AS n FROM kernels GROUP BY trace)) AS devices
"""
_NAMES = """
    SELECT DISTINCT name, true AS is_kernel FROM kernels WHERE name IS NOT NULL
    UNION ALL SELECT DISTINCT name, false FROM operators WHERE name IS NOT NULL
    UNION ALL SELECT DISTINCT name, false FROM annotations
    WHERE on_device = 0 AND regexp_matches(name, '^([a-z]+ccl|gloo|mpi|ucc):')
"""
_LIBRARY_NAME = re.compile(r"[a-z]{1,8}ccl|flagcx")
"""A library in the name of a backend, as eccl in `cuda:eccl`."""


@dataclass(frozen=True)
class CollectiveKernels:
    """Names of the kernels of collectives in a run."""

    reader: store.RunReader
    launched_names: frozenset[str] | None = None
    """`launched_by_collectives`, where another process has read them."""

    def predicate(
        self, definition: analysis.CommunicationDefinition = "wide"
    ) -> Callable[[str], bool]:
        """Return the function that is true for the name of a kernel of a collective. In a process
        alone only those of libraries count, and what operators of collectives launched."""
        if definition == "narrow":
            return analysis.is_narrow_communication
        launched, libraries = self.launched_by_collectives, self._libraries
        test = (
            analysis.is_communication if self.is_distributed else analysis.is_library_communication
        )
        return lambda name: name in launched or test(name) or bool(libraries.search(name))

    @cached_property
    def is_distributed(self) -> bool:
        """True if the traces show several ranks or devices: they state, or several of them are,
        ranks; they have groups of ranks, operators or kernels of collectives, or work of several
        devices."""
        (world,), (ranks,), (groups,), (devices,) = self.reader.sql(_SIGNS_OF_RANKS).values()
        if max(ranks, groups, devices) > 1 or world >= 1:
            return bool(max(world, ranks, groups, devices) > 1)
        return self._has_named(analysis.is_library_communication)

    @cached_property
    def has_collectives(self) -> bool:
        """True if the traces of several ranks contain a collective, of any kind."""
        # An operator tells it without a look at what such operators launched.
        return self._has_named(lambda _kernel: False) or self._has_named(self.predicate())

    def _has_named(self, is_of_kernel: Callable[[str], bool]) -> bool:
        names = self.reader.sql(_NAMES)
        return any(
            is_of_kernel(name)
            if is_kernel
            else analysis.is_collective_operator(name) or analysis.is_host_communication(name)
            for name, is_kernel in zip(names["name"], names["is_kernel"], strict=True)
        )

    @cached_property
    def _libraries(self) -> re.Pattern[str]:
        """Pattern of the libraries of the backends that the traces state."""
        backends = self.reader.sql("SELECT DISTINCT backend FROM traces WHERE backend IS NOT NULL")
        names = _LIBRARY_NAME.findall(" ".join(backends["backend"].tolist()).lower())
        return re.compile(rf"(?<![a-z])({'|'.join(names) or '(?!)'})", re.IGNORECASE)

    @cached_property
    def launched_by_collectives(self) -> frozenset[str]:
        """Names of kernels that operators of collectives launched themselves."""
        if self.launched_names is not None:
            return self.launched_names
        operators = self.reader.sql("SELECT DISTINCT name FROM operators WHERE name IS NOT NULL")
        names = sorted(filter(analysis.is_collective_operator, operators["name"].tolist()))
        if not names:
            return frozenset()
        kernels = self.reader.sql(
            "SELECT DISTINCT kernels.name FROM kernels JOIN operators ON "
            "kernels.trace = operators.trace AND kernels.operator = operators.id "
            "WHERE operators.name IN (SELECT unnest(?))",
            [names],
        )
        return frozenset(filter(analysis.may_communicate, kernels["name"].tolist()))


class QualityIssue(msgspec.Struct, frozen=True, kw_only=True):
    """Quality issue of a trace; `check` is a key of `QUALITY_CHECKS`."""

    check: str
    count: int
    of_count: int | None
    worst_ns: int | None
    detail: str | None


class Doubt(NamedTuple):
    """Quality issue of traces that changes what they seem to say."""

    check: str
    share: float | None
    """Affected share of what was checked; None where that has no size."""
    sentence: str


def make_issue(check: str, count: int, of_count: int | None, sentence: str) -> QualityIssue:
    return QualityIssue(check=check, count=count, of_count=of_count, worst_ns=None, detail=sentence)


MIN_DOUBT_SHARE = 0.001
"""Smaller shares of events or of text change no answer."""
EXCLUDING = frozenset(["impossible_time", "impossible_duration"])
"""Checks of events that are in no figure."""
NAMING_LOSSES = EXCLUDING | {"unpaired"}
"""Checks of ranges that are in no figure. Their detail names those that change an answer."""
DEVICE_TABLES = ("kernels", "copies")
"""Tables of device work."""
UNRECORDED_DEVICES = "the work of the devices ({}) was not recorded"
OPERATOR_SIGN = "operator "
"""Beginning of a sign that is the name of an operator."""
_DEVICE_SIGNS = {
    "devices": ("name", "TRUE"),
    "traces": ("'backend ' || backend", f"regexp_full_match(backend, '{schema.DEVICE_BACKENDS}')"),
    "runtime_calls": ("name", "TRUE"),
    "memory_events": ("'memory of a device'", "device_type > 0"),
    "annotations": ("name", f"regexp_matches(name, '{schema.DEVICE_NAMES}')"),
    "operators": (f"'{OPERATOR_SIGN}' || name", f"regexp_matches(name, '{schema.DEVICE_NAMES}')"),
}
"""Signs of a device by table, with the condition of rows that only a process with one writes."""
_WORK_CATEGORIES = ", ".join(
    f"'{category}'"
    for kind in schema.EVENT_KINDS
    if kind.table.name in DEVICE_TABLES
    for category in kind.categories
)
MAX_LOST_RATIO = 0.1
"""Share of the kernels, copies and sets of a file without which their time is not known."""
_LONG_READ_NS, _MIN_LONG_READS, _MIN_READING_RATIO = 1_000_000, 3, 0.05
"""Reads of a value that last longer wait for a device: on a CPU they take about a microsecond.
There are so many of them, with this share of the time, where this is no accident."""
_LONG_READS = f"""
    WITH reads AS (
        SELECT trace, id, name, duration_ns FROM operators WHERE trace IN ({{}})
        AND name IN ('aten::_local_scalar_dense', 'aten::item') AND duration_ns > {_LONG_READ_NS}
    ), children AS (
        SELECT reads.trace, reads.id, sum(operators.duration_ns) AS called_ns FROM operators
        JOIN reads ON operators.trace = reads.trace AND operators.parent = reads.id GROUP BY ALL
    ), alone AS (
        SELECT trace, name, duration_ns - coalesce(called_ns, 0) AS self_ns
        FROM reads LEFT JOIN children USING (trace, id)
    )
    SELECT trace, 'waits in ' || min(alone.name) AS sign FROM alone JOIN traces USING (trace)
    WHERE self_ns > {_LONG_READ_NS} GROUP BY trace HAVING count(*) >= {_MIN_LONG_READS}
    AND sum(self_ns) >= {_MIN_READING_RATIO} * any_value(end_ns - start_ns)
"""  # noqa: S608 - of constants


@dataclass(frozen=True)
class QualityRecord:
    """Quality record of a run: a few rows per trace."""

    reader: store.RunReader

    @cached_property
    def by_trace(self) -> dict[int, dict[str, QualityIssue]]:
        """Quality issues by trace and check."""
        rows = self.reader.table("quality")
        issues: dict[int, dict[str, QualityIssue]] = {}
        for i, (trace, check) in enumerate(zip(rows["trace"].tolist(), rows["kind"], strict=True)):
            issues.setdefault(trace, {})[check] = QualityIssue(
                check=check,
                count=int(rows["count"][i]),
                of_count=optional_int(rows["of_count"], i),
                worst_ns=optional_int(rows["worst_ns"], i),
                detail=rows["detail"][i],
            )
        return issues

    @cached_property
    def lost_work(self) -> dict[int, tuple[int, int]]:
        """Kernels, copies and sets that are in no figure, and all of the file, by trace, of the
        traces that have such."""
        rows = self.reader.sql(
            "SELECT trace, count(*) AS n FROM other_events WHERE phase IN ('X', 'B') AND "  # noqa: S608
            f"lower(category) IN ({_WORK_CATEGORIES}) GROUP BY trace"
        )
        lost = dict(zip(rows["trace"].tolist(), rows["n"].tolist(), strict=True))
        totals = dict(lost)
        for table in DEVICE_TABLES if lost else ():
            rows = self.reader.sql(f"SELECT trace, count(*) AS n FROM {table} GROUP BY trace")  # noqa: S608
            for trace, number in zip(rows["trace"].tolist(), rows["n"].tolist(), strict=True):
                totals[trace] = totals.get(trace, 0) + number
        return {trace: (number, totals[trace]) for trace, number in lost.items()}

    @cached_property
    def unrecorded_devices(self) -> dict[int, str]:
        """A sign of devices by trace, of the traces without any work of them in the file."""
        work = " UNION ".join(f"SELECT trace FROM {table}" for table in DEVICE_TABLES)  # noqa: S608
        rest = self.reader.sql(f"SELECT trace FROM traces WHERE trace NOT IN ({work})")["trace"]  # noqa: S608
        traces = [trace for trace in rest.tolist() if trace not in self.lost_work]
        numbers, signs = ", ".join(map(str, traces)), dict[int, str]()
        queries = [
            f"SELECT trace, min({sign}) AS sign FROM {table} "  # noqa: S608
            f"WHERE trace IN ({numbers}) AND {condition} GROUP BY trace"
            for table, (sign, condition) in _DEVICE_SIGNS.items()
        ]
        for query in [*queries, _LONG_READS.format(numbers)] if numbers else ():
            rows = self.reader.sql(query)
            for trace, name in zip(rows["trace"].tolist(), rows["sign"].tolist(), strict=True):
                signs.setdefault(trace, name)
        return signs


def optional_int(values: Any, row: int) -> int | None:
    """Return the integer of a row; None where it is missing."""
    return None if np.ma.getmaskarray(values)[row] else int(values[row])
