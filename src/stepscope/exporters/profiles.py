"""Trees of calls of a run with their own times: what flame graphs are drawn from.

    stack samples    per sampled thread; a sample weighs the time that it stands for
    host             operators of a trace: each its time outside those inside it, of which that
                     in the runtime of the device is a call of its own
    device           kernels and copies, below the operators that launched them

The weights of a tree sum up to the time that it covers, in nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, errors, schema, views
from stepscope.exporters.registry import ExportOptions
from stepscope.run import Run, Trace

Kind = Literal["samples", "host", "device"]
RUNTIME = "runtime calls"
UNLAUNCHED = "not launched by an operator"


class Frame(NamedTuple):
    """A function, operator or kernel."""

    name: str
    file: str = ""


class Profile(msgspec.Struct, kw_only=True):
    """Tree of calls."""

    name: str
    kind: Kind
    weights: dict[tuple[Frame, ...], int]
    """Time in ns by stack, outermost frame first."""
    start_ns: int
    """Epoch nanoseconds."""

    @property
    def total_ns(self) -> int:
        """Sum of the weights."""
        return sum(self.weights.values())


def collect_profiles(run: Run, options: ExportOptions) -> list[Profile]:
    """Collect the profiles of a run, of one rank, or of one trace.

    Raises:
        UsageError: there is none.
    """
    selection = views.ViewOptions(rank=options.rank, trace=options.trace)
    profiles = [] if options.trace else list(_sample_profiles(run, options.rank))
    if options.trace or not profiles or run.traces:
        traces = views.select_traces(run, selection)
        profiles += [profile for trace in traces for profile in _trace_profiles(trace)]
    profiles = [profile for profile in profiles if profile.weights]
    if not profiles:
        raise errors.UsageError(
            "Nothing to export: the run has no stack samples and no operators or kernels in traces."
        )
    return profiles


def _sample_profiles(run: Run, rank: int | None) -> Iterator[Profile]:
    """Yield a profile per sampled thread; entries, which are no regular samples, are left out."""
    query = "SELECT DISTINCT log FROM stacks WHERE process = ? AND log NOT LIKE '%e' ORDER BY log"
    for process in run.processes:
        if rank not in {None, process.rank}:
            continue
        samplers = process.facts_of(schema.StackSamplerFact)
        period_ns = next((sampler.period_ns for sampler in samplers), 0)
        label = f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"
        for log in run.reader.sql(query, [process.process])["log"].tolist():
            rows = run.reader.table(
                "stacks",
                ["t_ns", "stack"],
                condition="process = ? AND log = ?",
                parameters=[process.process, log],
                order_by="t_ns",
                encoded=["stack"],
            )
            stacks = [split_stack(stack or "") for stack in rows["stack"].values]
            weight_ns = analysis.weigh_samples(rows["t_ns"], period_ns)
            weights: defaultdict[tuple[Frame, ...], int] = defaultdict(int)
            for code, weight in zip(rows["stack"].codes.tolist(), weight_ns.tolist(), strict=True):
                weights[stacks[code]] += weight
            part = " before and after the steps" if log.endswith("s") else ""
            yield Profile(
                name=f"{label}: stack samples of {process.role} thread {log.rstrip('s')}{part}",
                kind="samples",
                weights=weights,
                start_ns=int(rows["t_ns"][0]),
            )


def split_stack(stack: str) -> tuple[Frame, ...]:
    """Split a stack.

    >>> split_stack("main|/a.py|;<call 1>")
    (Frame(name='main', file='/a.py'), Frame(name='<call 1>', file=''))
    """
    parts = (frame.split("|") for frame in stack.split(";"))
    return tuple(Frame(name, rest[0] if rest else "") for name, *rest in parts)


class _Paths:
    """Paths of names, each a node below that of its outer path."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._nodes: list[tuple[int, str]] = []
        self.weights: defaultdict[int, int] = defaultdict(int)

    def node(self, outer: int, name: str) -> int:
        """Return the node of a name below another one; -1 is the root."""
        key = (outer, name)
        number = self._numbers.setdefault(key, len(self._nodes))
        if number == len(self._nodes):
            self._nodes.append(key)
        return number

    def stacks(self) -> dict[tuple[Frame, ...], int]:
        """Return the weights by stack, only those above 0."""
        return {self.stack(node): weight for node, weight in self.weights.items() if weight > 0}

    def stack(self, node: int) -> tuple[Frame, ...]:
        """Return the path of a node."""
        names = []
        while node >= 0:
            node, name = self._nodes[node]
            names.append(Frame(name))
        return tuple(reversed(names))


def _trace_profiles(trace: Trace) -> Iterator[Profile]:
    host, device = _Paths(), _Paths()
    nodes: dict[int, int] = {}
    columns = ("id", "parent", "name", "duration_ns", "runtime_ns")
    for event, parent, name, duration_ns, runtime_ns in _rows(trace, "operators", columns, "depth"):
        outer = nodes.get(parent, -1)
        node = nodes[event] = host.node(outer, name)
        host.weights[node] += int(duration_ns) - (runtime_ns or 0)
        if runtime_ns:
            host.weights[host.node(node, RUNTIME)] += runtime_ns
        if outer >= 0:
            host.weights[outer] -= int(duration_ns)
    launchers: dict[int, int] = {}
    """Nodes of operators in the tree of the device, by those in that of the host."""
    for table in ("kernels", "copies"):
        for operator, name, duration_ns in _rows(
            trace, table, ("operator", "name", "duration_ns"), "id"
        ):
            outer = nodes.get(operator, -1)
            if outer not in launchers:
                launcher = -1
                for frame in host.stack(outer) or [Frame(UNLAUNCHED)]:
                    launcher = device.node(launcher, frame.name)
                launchers[outer] = launcher
            device.weights[device.node(launchers[outer], name)] += int(duration_ns)
    trees: tuple[tuple[Kind, str, _Paths], ...] = (
        ("host", "operators", host), ("device", "device time", device),
    )  # fmt: skip
    for kind, title, paths in trees:
        name = f"{trace.label}: {title}"
        yield Profile(name=name, kind=kind, weights=paths.stacks(), start_ns=trace.start_ns)


def _rows(
    trace: Trace, table: str, columns: Sequence[str], order_by: str
) -> Iterator[tuple[Any, ...]]:
    arrays = trace.reader.table(
        table, columns, condition="trace = ?", parameters=[trace.trace], order_by=order_by
    )
    return zip(*(np.ma.asarray(arrays[name]).tolist() for name in columns), strict=True)
