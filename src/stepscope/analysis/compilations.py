"""Compilations by torch.compile: their causes, by frame, and the work of the code they made.

saved     time that the hits of the cache of graphs with gradients saved, which include those of
          the cache of graphs; without such hits those of the cache of graphs
calls     calls of the graphs that a compilation has compiled, or is the first to have
kernels   kernels with a name that the compilation has given; if several have, those that its
          graph launched. A kernel that could be of several compilations counts for none
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Annotated

import msgspec
import numpy as np

from stepscope import intervals, schema


class CompilationEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Event of a compilation; see the table `compilation_events`."""

    kind: str
    name: str
    key: str | None = None
    file: str | None = None
    line: int | None = None
    saved_ns: int | None = None


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """Compilation of a frame with its events; see the table `compilations`."""

    rank: int | None
    compile_id: str
    direction: str
    function: str
    file: str
    line: int
    start_ns: int | None
    duration_ns: int | None
    backend_ns: int | None
    inductor_ns: int | None
    codegen_ns: int | None
    restart_ns: int | None
    guard_count: int | None
    operator_count: int | None
    graph_break_count: int | None
    failure: str | None
    events: list[CompilationEvent]

    def names(self, kind: str) -> list[str]:
        """List the names of the events of a kind, each once."""
        return list(dict.fromkeys(event.name for event in self.events if event.kind == kind))

    def count(self, kind: str) -> int:
        """Count the events of a kind."""
        return sum(event.kind == kind for event in self.events)

    @property
    def keys(self) -> set[str]:
        """Keys of its graphs."""
        return {
            event.key
            for event in self.events
            if event.key is not None
            and (event.kind == "kernel" or event.name == schema.GRAPH_CACHE)
        }

    @property
    def saved_ns(self) -> int:
        """Time that caches have saved."""
        saved_ns: Counter[str] = Counter()
        for event in self.events:
            saved_ns[event.name] += event.saved_ns or 0
        return saved_ns[schema.AUTOGRAD_CACHE] or saved_ns[schema.GRAPH_CACHE]


class CompiledFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Compilations of one function."""

    function: str
    file: str
    line: int
    compilation_count: int
    """Of all ranks, backward ones included."""
    recompilation_count: int
    """Those after a failed guard."""
    restart_count: int
    graph_break_count: int | None
    """Null if the log has no record of them."""
    cache_hit_count: int
    cache_miss_count: int
    total_ns: int
    backward_ns: int
    """Part of the total that compiled graphs of gradients later."""
    saved_ns: int
    """Time that hits of caches have saved."""


class CompilationCause(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one name at one line."""

    name: Annotated[str, schema.field_label("cause")]
    function: str
    """Function of the compiled frame."""
    file: str | None
    line: int | None
    count: int
    compilation_ns: Annotated[int, schema.field_label("time of these compilations")]


class WorkTime(msgspec.Struct, frozen=True):
    """Work of compiled code in the traces of one rank."""

    rank: int | None
    name: str
    """Name of a kernel; '' for calls of a graph."""
    key: str | None
    """Key of the graph; None if unknown."""
    count: int
    total_ns: int


class CompiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name in the traces of one rank."""

    rank: int | None
    name: str
    function: str
    """Compiled functions that have it, joined by commas."""
    compile_ids: str
    """Compilations that have it, joined by commas."""
    count: int
    total_ns: int


class CompiledWork(msgspec.Struct, frozen=True):
    """Work of one compilation in traces; None where it is unknown."""

    call_count: int | None
    call_ns: int | None
    kernel_ns: int | None


class GraphCalls(msgspec.Struct, frozen=True, eq=False):
    """Calls of compiled graphs in a trace, track by track, each by start."""

    keys: list[str]
    track: intervals.Int
    start_ns: intervals.Int
    end_ns: intervals.Int

    def find_keys(self, track: intervals.Int, t_ns: intervals.Int) -> list[str | None]:
        """Find the key of the call that runs on a track at each time; None without one."""
        keys: list[str | None] = [None] * len(t_ns)
        for number in np.unique(self.track).tolist():
            calls, rows = np.flatnonzero(self.track == number), np.flatnonzero(track == number)
            latest = np.searchsorted(self.start_ns[calls], t_ns[rows], side="right") - 1
            for row, call in zip(rows.tolist(), latest.tolist(), strict=True):
                if call >= 0 and t_ns[row] < self.end_ns[calls[call]]:
                    keys[row] = self.keys[calls[call]]
        return keys


def sum_work(works: Iterable[WorkTime]) -> list[WorkTime]:
    """Sum work of the same rank, name and graph."""
    count: Counter[tuple[int | None, str, str | None]] = Counter()
    total_ns: Counter[tuple[int | None, str, str | None]] = Counter()
    for work in works:
        count[work.rank, work.name, work.key] += work.count
        total_ns[work.rank, work.name, work.key] += work.total_ns
    return [WorkTime(*group, count[group], total_ns[group]) for group in count]


def list_frames(compilations: Iterable[Compilation]) -> list[CompiledFrame]:
    """List the compiled functions, the longest to compile first."""
    groups: defaultdict[tuple[str, str, int], list[Compilation]] = defaultdict(list)
    for compilation in compilations:
        groups[compilation.file, compilation.function, compilation.line].append(compilation)
    frames = [
        CompiledFrame(
            function=function,
            file=file,
            line=line,
            compilation_count=len(group),
            recompilation_count=sum(item.count("failed_guard") > 0 for item in group),
            restart_count=sum(item.count("restart") for item in group),
            graph_break_count=sum_counts(item.graph_break_count for item in group),
            cache_hit_count=sum(item.count("cache_hit") for item in group),
            cache_miss_count=sum(item.count("cache_miss") for item in group),
            total_ns=_sum_durations(group),
            backward_ns=_sum_durations(item for item in group if item.direction == "backward"),
            saved_ns=sum(item.saved_ns for item in group),
        )
        for (file, function, line), group in groups.items()
    ]
    return sorted(frames, key=lambda frame: -frame.total_ns)


def sum_counts(counts: Iterable[int | None]) -> int | None:
    """Sum up counts; None if one is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def list_causes(compilations: Iterable[Compilation], kind: str) -> list[CompilationCause]:
    """List the events of a kind by name, function and line, those of the longest compilations
    first."""
    groups: defaultdict[tuple[str, str, str | None, int | None], list[Compilation]]
    groups = defaultdict(list)
    for compilation in compilations:
        for event in compilation.events:
            if event.kind == kind:
                groups[event.name, compilation.function, event.file, event.line].append(compilation)
    causes = [
        CompilationCause(
            name=name,
            function=function,
            file=file,
            line=line,
            count=len(group),
            compilation_ns=_sum_durations({id(item): item for item in group}.values()),
        )
        for (name, function, file, line), group in groups.items()
    ]
    return sorted(causes, key=lambda cause: -cause.compilation_ns)


class CompilationIndex:
    """Index of compilations by kernel and by graph."""

    def __init__(self, compilations: Sequence[Compilation]) -> None:
        self._compilations = compilations
        self._by_kernel: defaultdict[str, list[int]] = defaultdict(list)
        self._by_key: defaultdict[str, list[int]] = defaultdict(list)
        for number, compilation in enumerate(compilations):
            for name in compilation.names("kernel"):
                self._by_kernel[name].append(number)
            for key in compilation.keys:
                self._by_key[key].append(number)

    @property
    def kernels(self) -> list[str]:
        """Names of kernels."""
        return list(self._by_kernel)

    def join_kernels(self, kernels: Iterable[WorkTime]) -> list[CompiledKernel]:
        """Name the compilations of kernels, the longest kernel first."""
        joined = []
        for kernel in kernels:
            owners = [self._compilations[number] for number in self._find_owners(kernel)]
            joined.append(
                CompiledKernel(
                    rank=kernel.rank,
                    name=kernel.name,
                    function=", ".join(dict.fromkeys(owner.function for owner in owners)),
                    compile_ids=", ".join(dict.fromkeys(owner.compile_id for owner in owners)),
                    count=kernel.count,
                    total_ns=kernel.total_ns,
                )
            )
        return sorted(joined, key=lambda kernel: -kernel.total_ns)

    def attribute_work(
        self, kernels: Iterable[WorkTime], calls: Iterable[WorkTime]
    ) -> list[CompiledWork]:
        """Return the work of each compilation."""
        kernel_ns: defaultdict[int, int] = defaultdict(int)
        call_ns: defaultdict[int, int] = defaultdict(int)
        call_count: defaultdict[int, int] = defaultdict(int)
        for kernel in kernels:
            owners = self._find_owners(kernel)
            if len(owners) == 1:
                kernel_ns[owners[0]] += kernel.total_ns
        for call in calls:
            for owner in self._find_compiler(call, range(len(self._compilations))):
                call_ns[owner] += call.total_ns
                call_count[owner] += call.count
        return [
            CompiledWork(call_count.get(number), call_ns.get(number), kernel_ns.get(number))
            for number in range(len(self._compilations))
        ]

    def _find_owners(self, kernel: WorkTime) -> list[int]:
        """Find the compilations that a kernel may be of."""
        candidates = [n for n in self._by_kernel[kernel.name] if self._is_of_rank(n, kernel)]
        return self._find_compiler(kernel, candidates) or candidates

    def _find_compiler(self, work: WorkTime, candidates: Container[int]) -> list[int]:
        """Find the first compilation of a graph: later ones have it from a cache."""
        compiled = self._by_key.get(work.key, []) if work.key is not None else []
        return [n for n in compiled if n in candidates and self._is_of_rank(n, work)][:1]

    def _is_of_rank(self, number: int, work: WorkTime) -> bool:
        rank = self._compilations[number].rank
        return rank is None or work.rank is None or rank == work.rank


def _sum_durations(compilations: Iterable[Compilation]) -> int:
    return sum(compilation.duration_ns or 0 for compilation in compilations)
