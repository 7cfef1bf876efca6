"""Compilations of a log of TORCH_TRACE, with their events.

A compilation begins with `dynamo_start`, or with the guards that failed before it, and ends with
`compilation_metrics`. What the log has of it afterwards is of the graph of its gradients: if that
is compiled later, `bwd_compilation_metrics` ends another compilation, backward.

After torch._dynamo.reset() compile ids begin again, so that one id may be of several compilations,
one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stepscope import schema
from stepscope.importers.torch_trace.log import Metrics, Record

_KERNEL = re.compile(rb"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_BREAK_LINE = re.compile(r"Graph break in user code at (.+):(\d{1,18})")
_BREAK_REASON = "Graph Break Reason: "
_ATTEMPT = re.compile(r"^Encountered graph break when attempting to trace [^\n]*\n+")
_USER_LINE = re.compile(r'^ +File "(.+)", line (\d{1,18}), in ', re.MULTILINE)
_USER_CODE = "\nUser code traceback:"
_GUARD = re.compile(r"^(?:- )?(!?(?:\d+/)?\d+/\d+): (.*)$")
_TIME_US = re.compile(rb'"ts": (\d{1,18})(?:\.\d+)?')
_CACHES = {"fx_graph_cache": schema.GRAPH_CACHE, "aotautograd_cache": schema.AUTOGRAD_CACHE}
_OUTCOMES = ("hit", "miss", "bypass")
_MAX_NS = 2**62
_MAX_LINE = 2**31 - 1


class Event(msgspec.Struct, kw_only=True):
    """Row of `compilation_events` of a compilation."""

    kind: str
    name: str
    detail: str | None = None
    key: str | None = None
    file: str | None = None
    line: int | None = None
    saved_ns: int | None = None


class Compilation(msgspec.Struct, kw_only=True):
    """Row of `compilations` with its events."""

    compile_id: str
    direction: str = "forward"
    function: str = ""
    file: str = ""
    line: int = 0
    start_ns: int | None = None
    metrics: Metrics = msgspec.field(default_factory=Metrics)
    has_started: bool = False
    """The log has the start."""
    has_ended: bool = False
    graph_break_count: int | None = None
    """Graph breaks; None if the log, of an older torch, has no record of any."""
    events: list[Event] = msgspec.field(default_factory=list)

    @property
    def duration_ns(self) -> int | None:
        """Time in the compiler."""
        metrics = self.metrics
        return _to_ns(
            metrics.duration_us or metrics.dynamo_cumulative_compile_time_us,
            metrics.entire_frame_compile_time_s,
        )

    @property
    def backend_ns(self) -> int | None:
        """Time of the backend."""
        metrics = self.metrics
        return _to_ns(
            metrics.aot_autograd_cumulative_compile_time_us, metrics.backend_compile_time_s
        )

    @property
    def inductor_ns(self) -> int | None:
        """Time of Inductor."""
        metrics = self.metrics
        return _to_ns(metrics.inductor_cumulative_compile_time_us, metrics.inductor_compile_time_s)

    @property
    def codegen_ns(self) -> int | None:
        """Time of code generation."""
        metrics = self.metrics
        return _to_ns(metrics.inductor_code_gen_cumulative_compile_time_us, metrics.code_gen_time_s)

    @property
    def restart_ns(self) -> int | None:
        """Time of attempts that were started again."""
        return _to_ns(None, self.metrics.dynamo_time_before_restart_s)

    @property
    def earlier_count(self) -> int | None:
        """Compilations of the code before."""
        return self.metrics.cache_size

    @property
    def guard_count(self) -> int | None:
        """Guards of the compiled code."""
        return self.metrics.guard_count

    @property
    def operator_count(self) -> int | None:
        """Operators in the captured graph."""
        return self.metrics.graph_op_count

    @property
    def break_count(self) -> int:
        """Records of graph breaks."""
        return sum(event.kind == "graph_break" for event in self.events)

    @property
    def failure(self) -> str | None:
        """Type and reason of the failure."""
        reasons = (self.metrics.fail_type, self.metrics.fail_reason)
        return ": ".join(filter(None, reasons)) or None


class CompilationBuilder:
    """Builder of the compilations of a log from its records."""

    def __init__(self) -> None:
        self.compilations: list[Compilation] = []
        """In the order of their ends; those without one come last."""
        self.rank: int | None = None
        """Rank of the process, if a record has it."""
        self._names: dict[int, str] = {}
        self._open: dict[str, Compilation] = {}
        self._ended: dict[str, Compilation] = {}
        """Latest compilation of each id that has ended."""
        self._later: dict[str, list[Event]] = {}
        """Events after the end, by id."""
        self._latest_us: dict[str, int] = {}
        """Latest time that an event of the compiler has, by id."""

    def build(self, records: Iterable[Record]) -> list[Compilation]:
        """Build the compilations of all records of a log."""
        for record in records:
            if record.rank is not None:
                self.rank = record.rank
            if record.interned is not None:
                name, number = record.interned
                self._names[number] = name
            compile_id = record.compile_id
            if compile_id is not None:
                self._add(record, compile_id)
        for compilation in list(self._open.values()):
            if compilation.has_started or compilation.events:
                self.compilations.append(compilation)
        for compile_id in list(self._later):
            self._close_later(compile_id)
        if any(
            item.break_count or item.metrics.num_graph_breaks is not msgspec.UNSET
            for item in self.compilations
        ):
            for compilation in self.compilations:
                compilation.graph_break_count = compilation.break_count
        return self.compilations

    def _add(self, record: Record, compile_id: str) -> None:
        if record.chromium_event is not None:
            time = _TIME_US.search(record.payload)
            if time is not None:
                self._latest_us[compile_id] = int(time[1])
        elif record.dynamo_start is not None:
            self._start(record, compile_id)
        elif record.compilation_metrics is not None:
            compilation = self._open.pop(compile_id, Compilation(compile_id=compile_id))
            self._end(compilation, record.compilation_metrics)
            self._ended[compile_id] = compilation
        elif record.bwd_compilation_metrics is not None:
            forward = self._ended.get(compile_id, Compilation(compile_id=compile_id))
            backward = Compilation(
                compile_id=compile_id,
                direction="backward",
                function=forward.function,
                file=forward.file,
                line=forward.line,
                events=self._later.pop(compile_id, []),
            )
            self._end(backward, record.bwd_compilation_metrics)
        else:
            self._add_events(record, compile_id)

    def _start(self, record: Record, compile_id: str) -> None:
        compilation = self._open_compilation(compile_id)
        if compilation.has_started:  # the one before has no end
            self.compilations.append(self._open.pop(compile_id))
            compilation = self._open_compilation(compile_id)
        compilation.has_started = True
        latest_us = self._latest_us.get(compile_id)
        compilation.start_ns = None if latest_us is None else latest_us * 1000
        frames = record.dynamo_start.stack if record.dynamo_start else []
        if frames:
            compilation.function = frames[-1].name
            compilation.file = self._names.get(frames[-1].filename, "")
            compilation.line = frames[-1].line

    def _open_compilation(self, compile_id: str) -> Compilation:
        """Return the compilation that goes on, or begin one."""
        if compile_id not in self._open:
            self._close_later(compile_id)
            self._open[compile_id] = Compilation(compile_id=compile_id)
        return self._open[compile_id]

    def _close_later(self, compile_id: str) -> None:
        """Attribute the events after an end to that compilation: none of gradients followed."""
        events = self._later.pop(compile_id, [])
        if events:
            self._ended[compile_id].events += events

    def _end(self, compilation: Compilation, metrics: Metrics) -> None:
        compilation.metrics, compilation.has_ended = metrics, True
        compilation.function = metrics.co_name or compilation.function
        compilation.file = metrics.co_filename or compilation.file
        compilation.line = metrics.co_firstlineno or compilation.line
        compilation.start_ns = _to_ns(metrics.start_time_us, metrics.start_time) or (
            self._find_start(compilation)
        )
        compilation.events += [
            Event(kind="restart", name=_first_line(reason), detail=reason)
            for reason in metrics.restart_reasons or []
        ]
        has_guard = any(event.kind == "failed_guard" for event in compilation.events)
        if metrics.recompile_reason and not has_guard:
            compilation.events += _read_guards(metrics.recompile_reason)
        self.compilations.append(compilation)

    def _find_start(self, compilation: Compilation) -> int | None:
        """Return the start, or the time before the latest event that the compilation took."""
        latest_us = self._latest_us.get(compilation.compile_id)
        if compilation.has_started or latest_us is None or compilation.duration_ns is None:
            return compilation.start_ns
        return latest_us * 1000 - compilation.duration_ns

    def _add_events(self, record: Record, compile_id: str) -> None:
        name = record.artifact.name if record.artifact is not None else ""
        if name == "recompile_reasons":
            self._open_compilation(compile_id).events += _read_guards(_decode(record.payload))
            return
        events = list(_read_events(record, name))
        if not events:
            return
        if compile_id in self._ended and compile_id not in self._open:
            earlier = self._later.setdefault(compile_id, [])
        else:
            earlier = self._open_compilation(compile_id).events
        if events[0].name == schema.GRAPH_CACHE:
            _give_key(earlier, events[0].key)
        earlier += events


def _give_key(events: list[Event], key: str | None) -> None:
    """Note the key of a graph in its kernels, which the log has right before its lookup."""
    for event in reversed(events):
        if event.kind != "kernel":
            return
        event.key = key


def _read_events(record: Record, artifact: str) -> Iterator[Event]:
    """Read the events of a record, except guards."""
    if record.inductor_output_code is not None:
        file = record.inductor_output_code.filename
        for name in dict.fromkeys(_KERNEL.findall(record.payload)):
            yield Event(kind="kernel", name=name.decode(), detail=file)
    elif artifact == "dynamo_graph_break_reason":
        yield _read_break(_decode(record.payload))
    cache, _, outcome = artifact.rpartition("_")
    if cache in _CACHES and outcome in _OUTCOMES:
        yield _read_lookup(_CACHES[cache], outcome, record.payload)


def _read_break(text: str) -> Event:
    file, line = _read_line(_BREAK_LINE.search(text))
    detail = text.partition(_USER_CODE)[0].partition(_BREAK_REASON)[2].strip() or text.strip()
    return Event(
        kind="graph_break",
        name=_first_line(_ATTEMPT.sub("", detail)),
        detail=detail,
        file=file,
        line=line,
    )


def _read_guards(text: str) -> list[Event]:
    """Read the guards that failed; the artifact says that it is JSON, and is text.

    A line is that of a guard, and those below it, which are indented, are a stack of the user's
    code. Texts that are a list in JSON have one item per guard.
    """
    try:
        items: Any = msgspec.json.decode(text)
        lines = "\n".join(map(str, items)) if isinstance(items, list) else text
    except schema.MALFORMED_JSON:
        lines = text
    events: list[Event] = []
    for line in lines.splitlines():
        match = _GUARD.match(line.strip())
        frame = _USER_LINE.match(line)
        if match is not None:
            name = match[2].partition("  # ")[0].strip()
            events.append(Event(kind="failed_guard", name=name, detail=line.strip()))
        elif events and frame is not None:
            events[-1].file, events[-1].line = _read_line(frame)
        elif not events and line.strip():
            events.append(Event(kind="failed_guard", name=line.strip(), detail=line.strip()))
    return events


def _read_lookup(cache: str, outcome: str, payload: bytes) -> Event:
    """Read what a cache answered."""
    try:
        content = msgspec.json.decode(payload)
    except schema.MALFORMED_JSON:
        content = None
    content = content if isinstance(content, dict) else {}
    key, reason = content.get("key"), content.get("cache_bypass_reason")
    saved_ns, saved_ms = content.get("time_saved_ns"), content.get("time_saved_ms")
    if saved_ns is None and isinstance(saved_ms, int | float):
        saved_ns = saved_ms * 1e6
    return Event(
        kind=f"cache_{outcome}",
        name=cache,
        detail=reason if isinstance(reason, str) else None,
        key=key if isinstance(key, str) else None,
        saved_ns=round(saved_ns)
        if isinstance(saved_ns, int | float) and 0 <= saved_ns < _MAX_NS
        else None,
    )


def _read_line(match: re.Match[str] | None) -> tuple[str | None, int | None]:
    """Return the file and the line of a match."""
    if match is None or int(match[2]) > _MAX_LINE:
        return None, None
    return match[1], int(match[2])


def _decode(payload: bytes) -> str:
    return payload.decode("utf-8", "replace")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _to_ns(time_us: int | None, time_s: float | None) -> int | None:
    """Convert a time that newer versions have in microseconds and older ones in seconds."""
    value = time_us * 1000 if time_us else time_s * 1e9 if time_s is not None else None
    return round(value) if value is not None and 0 <= value < _MAX_NS else None
