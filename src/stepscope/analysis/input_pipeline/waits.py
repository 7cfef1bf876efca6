"""Waits of the training thread, by what runs below its line, and what fills them.

    classify_wait    frames and running call -> what the thread waits for
    find_waits       samples -> waits by line, with the function that fills each

The frames of the standard library below the innermost line of user code tell what a thread waits
for; where a C function waits, which has no frame, the call does. A stack is recorded together with
that of the thread which fills the wait; processes that work for the job are sampled themselves.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.input_pipeline.batches import StackSamples, parse_source_call
from stepscope.analysis.input_pipeline.code_stages import (
    FILLER_MARK,
    Frame,
    parse_call,
    parse_stack,
)
from stepscope.analysis.input_pipeline.data_preparation import find_pipeline
from stepscope.analysis.input_pipeline.locks import is_waiting_for_lock, select_below_user
from stepscope.analysis.input_pipeline.stacks import (
    find_library_function,
    find_phase_at,
    find_training_loop,
    is_in_framework,
    select_below,
)
from stepscope.analysis.steps.phases import PHASES
from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import Steps

WaitKind = Literal["service", "thread", "process", "program", "coroutine", "lock"]
WAIT_PHASES = ("other", "data_wait")
"""Phases with waits. A wait in a compute phase, such as that of a backward pass for its thread, is
part of the computation."""


_BLOCKING: tuple[tuple[str, frozenset[str], WaitKind], ...] = (
    ("/asyncio/subprocess.py", frozenset(), "program"),
    ("/asyncio/base_subprocess.py", frozenset(), "program"),
    ("/asyncio/streams.py", frozenset(), "service"),
    ("/asyncio/threads.py", frozenset(), "thread"),
    (
        "/asyncio/",
        frozenset({"wait", "get", "join", "gather", "wait_for", "acquire", "sleep"}),
        "coroutine",
    ),
    ("/concurrent/futures/process.py", frozenset(), "process"),
    (
        "/concurrent/futures/_base.py",
        frozenset(
            {"result", "exception", "wait", "as_completed", "result_iterator", "_result_or_cancel"}
        ),
        "thread",
    ),
    ("/multiprocessing/", frozenset(), "process"),
    ("/subprocess.py", frozenset(), "program"),
    ("/socket.py", frozenset(), "service"),
    ("/ssl.py", frozenset(), "service"),
    ("/http/client.py", frozenset(), "service"),
    ("/urllib/request.py", frozenset(), "service"),
    ("/xmlrpc/client.py", frozenset(), "service"),
    ("/queue.py", frozenset({"get", "put", "join"}), "thread"),
    (
        "/threading.py",
        frozenset({"wait", "wait_for", "join", "acquire", "_wait_for_tstate_lock"}),
        "thread",
    ),
)
"""Files of the standard library and functions in them, all where empty, by what they wait for."""
_SERVICES = frozenset(
    (
        *(
            "aiohttp",
            "anthropic",
            "elasticsearch",
            "grpc",
            "httpcore",
            "httpx",
            "openai",
            "pymongo",
        ),
        *("psycopg", "pymysql", "redis", "requests", "urllib3", "websocket", "websockets", "zmq"),
    )
)
"""Libraries that talk to a service."""
_C_CALLS: dict[str, WaitKind] = {
    "accept": "service",
    "acquire": "thread",
    "get": "thread",
    "recv": "service",
    "recv_into": "service",
    "recvfrom": "service",
    "waitpid": "program",
}
"""C functions that block, by their names."""
_QUEUE_ARGUMENTS = frozenset({"block", "timeout"})
_SLEEPS = re.compile(r"^([\w.]+\.)?sleep\(")
_PROCESS_START = "/multiprocessing/process.py"
_STARTS = ("/threading.py", _PROCESS_START)
_NO_SOURCE = "<"
"""Start of the names of files of generated code."""
MIN_INLINE_RATIO = 0.5
"""Share of the samples of an input pipeline in the training thread from which a function of the job
stands for it; the rest is its own work."""
MIN_FILLER_RATIO = 0.1
"""Share of the samples of a wait from which the function that fills it is named."""


class Wait(NamedTuple):
    """Wait of a thread."""

    kind: WaitKind
    pipeline: str = ""
    """Name of an input pipeline; '' for code of the job."""


class Filler(NamedTuple):
    """Thread that fills a wait, as recorded with one sample."""

    line: int
    """Line of its innermost frame of user code."""
    worker_count: int
    """Threads that do the same."""
    frames: list[Frame]


def parse_filler(text: str) -> Filler | None:
    """Parse the thread that fills the wait of a recorded stack; None without one."""
    _, mark, rest = text.partition(FILLER_MARK)
    if not mark:
        return None
    head, _, stack = rest.partition(";")
    line, _, count = head.partition("|")
    return Filler(int(line), int(count), parse_stack(stack))


def classify_wait(frames: Sequence[Frame], call: str = "", line: str = "") -> Wait | None:
    """Classify what a thread waits for; None if it does not wait, as far as is known.

    Args:
        frames: its stack, outermost first.
        call: the call that the innermost line of user code runs; '' where it is not known.
        line: the line, where the call is not known.
    """
    below = select_below_user(frames)
    if any(frame.library == "torch" for frame in below):
        return None
    if is_waiting_for_lock(frames, call or line):
        return Wait("lock")
    kind = _classify_frames(below) if below else _classify_call(call)
    pipeline = find_pipeline(below)
    if kind is None and pipeline is not None:
        waits = any(frame.bare_function in pipeline.native_waits for frame in below)
        kind = "thread" if waits else None
    if kind is None and _is_awaited(frames):
        kind = "coroutine"
    if kind is None:
        return None
    return Wait(kind, pipeline.name if pipeline is not None else "")


def is_sleeping(frames: Sequence[Frame], call: str) -> bool:
    """Return True if a thread sleeps; arguments as above. A Python function of that name would be a
    frame of its own."""
    return not select_below_user(frames) and _SLEEPS.search(call) is not None


def _is_awaited(frames: Sequence[Frame]) -> bool:
    """Return True if an event loop waits, and the stack goes on with what it waits for."""
    loops = [index for index, frame in enumerate(frames) if frame.module == "selectors"]
    return bool(loops) and any(not frame.library for frame in frames[loops[-1] :])


def _classify_frames(frames: Sequence[Frame]) -> WaitKind | None:
    """Classify by the outermost frame that blocks: `Pool.map` waits for an event, of a process."""
    for frame in frames:
        if frame.library in _SERVICES:
            return "service"
        if frame.library == "ray" and frame.bare_function == "get":
            return "process"
        if frame.library != "python":
            continue
        for path, functions, kind in _BLOCKING:
            if path in frame.file and (not functions or frame.bare_function in functions):
                return kind
    return None


def _classify_call(text: str) -> WaitKind | None:
    """Classify the call of a C function by its name; `get` waits only without a key."""
    call = parse_source_call(text)
    if call is None:
        return None
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else ""
    if name == "get":
        has_key = any(not _is_flag(argument) for argument in call.args)
        if has_key or any(keyword.arg not in _QUEUE_ARGUMENTS for keyword in call.keywords):
            return None
    return _C_CALLS.get(name)


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


class FillingFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Function that the threads or processes behind a wait spend most of their time in."""

    name: str
    file: str
    line: int
    """Most frequent line of user code in it; 0 where not known."""
    worker_count: int
    """Threads or processes that run it."""
    in_processes: bool
    computes_ratio: float
    """Share of its samples in which it computed, rather than waited."""
    waits_for: WaitKind | None
    """Kind of its waits, where it mostly waits; None where it computes or sleeps."""

    @property
    def location(self) -> str:
        """Name, file and line."""
        if self.file.startswith(_NO_SOURCE):
            return self.name
        file = self.file.rpartition("/")[2]
        return f"{self.name} ({file}:{self.line})" if self.line else f"{self.name} ({file})"


class LineWait(msgspec.Struct, frozen=True, kw_only=True):
    """Waits at one line of user code, or in a function of the library that has the loop."""

    kind: WaitKind
    pipeline: str
    """Name of an input pipeline; '' for code of the job."""
    file: str
    """File of user code, or name of the library and its function."""
    line: int
    """0 for a function of a library."""
    text: str
    caller: str
    """Innermost function of user code; '' for the script itself."""
    phase: str
    ratio: float
    """Share of the time in the phase."""
    sample_count: int
    function: FillingFunction | None
    """None where it was not sampled."""
    is_inline: bool = False
    """True where the training thread runs the function of the input pipeline itself."""


class _Work(NamedTuple):
    """Stack of what fills a wait."""

    frames: Sequence[Frame]
    line: int
    text: str
    """Text of the call that the innermost line of user code runs; '' where it is not known."""
    worker_count: int
    sample_count: int


class _LineSums(msgspec.Struct):
    """Sums of the waits at one line."""

    time_ns: int = 0
    sample_count: int = 0
    kinds: Counter[WaitKind] = msgspec.field(default_factory=Counter)
    text: str = ""
    caller: str = ""
    fillers: list[_Work] = msgspec.field(default_factory=list)


class _WaitKey(NamedTuple):
    phase: str
    pipeline: str
    file: str
    line: int
    is_inline: bool


def find_waits(
    spans: Spans, samples: StackSamples, steps: Steps, workers: Sequence[StackSamples] = ()
) -> list[LineWait]:
    """Find the waits of a training thread, largest first.

    Args:
        spans: spans of the process.
        samples: samples of the training thread.
        steps: steps of the process.
        workers: samples of processes that work for the job.
    """
    phases = find_phase_at(samples.t_ns, spans, steps)
    in_phases = (phases >= 0) & (phases != PHASES.index("other"))
    loop = find_training_loop(samples, in_phases)
    sums: dict[_WaitKey, _LineSums] = {}
    total_ns: dict[str, int] = {}
    for phase in WAIT_PHASES:
        selected = phases == PHASES.index(phase)
        total_ns[phase] = int(samples.weight_ns[selected].sum())
        for stack, line, count, time_ns in _count_stacks(samples, selected):
            _add_stack(sums, samples, loop, phase, _Stack(stack, line, count), time_ns)
    in_processes = _list_worker_samples(workers, steps)
    waits = [
        _summarize(wait_key, entry, total_ns[wait_key.phase], in_processes)
        for wait_key, entry in sums.items()
    ]
    return sorted(waits, key=lambda wait: -wait.ratio)


class _Stack(NamedTuple):
    """Stack with its line of user code, and the number of its samples."""

    code: int
    line: int
    sample_count: int


def _count_stacks(
    samples: StackSamples, selected: NDArray[np.bool_]
) -> list[tuple[int, int, int, int]]:
    """Count the selected samples by stack and line: stack, line, samples, nanoseconds."""
    keys = np.stack([samples.stack, samples.user_line], axis=1)[selected]
    unique, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    time_ns = np.zeros(len(unique), dtype=np.int64)
    np.add.at(time_ns, inverse.ravel(), samples.weight_ns[selected])
    rows = zip(unique.tolist(), counts.tolist(), time_ns.tolist(), strict=True)
    return [(stack, line, count, total) for (stack, line), count, total in rows]


def _add_stack(  # noqa: PLR0917
    sums: dict[_WaitKey, _LineSums],
    samples: StackSamples,
    loop: Sequence[Frame],
    phase: str,
    stack: _Stack,
    time_ns: int,
) -> None:
    recorded = samples.stacks[stack.code]
    frames = parse_stack(recorded)
    users = [frame for frame in frames if not frame.library]
    if not users:
        return
    file, number = users[-1].file, parse_call(recorded)
    text = samples.sources.get((file, stack.line, number), "")
    wait = classify_wait(frames, text if number else "", text)
    pipeline = find_pipeline(frames) if wait is None else None
    inner = select_below(loop, frames)
    location = find_library_function(inner) if is_in_framework(loop, inner) else None
    if wait is not None:
        wait_key = _WaitKey(
            phase, wait.pipeline, *(location or (file, stack.line)), is_inline=False
        )
    elif pipeline is not None:
        wait_key = _WaitKey(phase, pipeline.name, "", 0, is_inline=True)
    else:
        return
    entry = sums.setdefault(wait_key, _LineSums())
    entry.time_ns += time_ns
    entry.sample_count += stack.sample_count
    if location is None:
        entry.text, entry.caller = entry.text or text, users[-1].function.removeprefix("<module>")
    entry.kinds[wait.kind if wait is not None else "thread"] += stack.sample_count
    filler = parse_filler(recorded)
    if wait is None:
        if find_pipeline(select_below_user(frames)) is None:  # it runs a function of the job
            entry.fillers.append(
                _Work(frames, stack.line, text if number else "", 1, stack.sample_count)
            )
    elif filler is not None:
        number = parse_call(recorded.partition(FILLER_MARK)[2])
        call = _find_call(samples, filler.frames, filler.line, number)
        entry.fillers.append(
            _Work(filler.frames, filler.line, call, filler.worker_count, stack.sample_count)
        )


def _find_call(samples: StackSamples, frames: Sequence[Frame], line: int, number: int) -> str:
    files = [frame.file for frame in frames if not frame.library]
    return samples.sources.get((files[-1], line, number), "") if files and number else ""


def _list_worker_samples(workers: Sequence[StackSamples], steps: Steps) -> list[_Work]:
    """List the samples of processes that run code of the job while a process trains."""
    by_process = []
    for worker in workers:
        during = (worker.t_ns >= steps.start[0]) & (worker.t_ns < steps.end[-1])
        works = []
        for stack, line, count, _ in _count_stacks(worker, during):
            frames = _cut_start(parse_stack(worker.stacks[stack]))
            if any(not frame.library for frame in frames):
                call = _find_call(worker, frames, line, parse_call(worker.stacks[stack]))
                works.append(_Work(frames, line, call, 1, count))
        by_process.append(works)
    active_count = sum(map(bool, by_process))
    return [work._replace(worker_count=active_count) for works in by_process for work in works]


def _cut_start(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Leave out the frames before the start of a process: a fork copies those of its parent."""
    starts = [index for index, frame in enumerate(frames) if frame.file.endswith(_PROCESS_START)]
    return frames[starts[-1] :] if starts else frames


def _summarize(
    wait_key: _WaitKey, entry: _LineSums, total_ns: int, in_processes: list[_Work]
) -> LineWait:
    kind = entry.kinds.most_common(1)[0][0]
    function = None
    min_ratio = MIN_INLINE_RATIO if wait_key.is_inline else MIN_FILLER_RATIO
    if _count_samples(entry.fillers) >= min_ratio * entry.sample_count:
        function = _find_function(entry.fillers, in_processes=False)
    if (
        function is None
        and in_processes
        and not wait_key.is_inline
        and kind in {"thread", "process"}
    ):
        kind, function = "process", _find_function(in_processes, in_processes=True)
    return LineWait(
        kind=kind,
        pipeline=wait_key.pipeline,
        file=wait_key.file,
        line=wait_key.line,
        text=entry.text,
        caller=entry.caller,
        phase=wait_key.phase,
        ratio=entry.time_ns / max(1, total_ns),
        sample_count=entry.sample_count,
        function=function,
        is_inline=wait_key.is_inline,
    )


def _count_samples(works: Sequence[_Work]) -> int:
    return sum(work.sample_count for work in works)


def _find_function(works: Sequence[_Work], *, in_processes: bool) -> FillingFunction | None:
    """Find the function that has most of the samples."""
    by_function: dict[tuple[str, str], list[_Work]] = {}
    lines: dict[tuple[str, str], Counter[int]] = {}
    for work in works:
        frame = _select_function(work.frames)
        if frame is None:
            continue
        key = frame.function, frame.file
        by_function.setdefault(key, []).append(work)
        users = [user for user in work.frames if not user.library]
        if users[-1] == frame:
            lines.setdefault(key, Counter())[work.line] += work.sample_count
    if not by_function:
        return None
    key = max(by_function, key=lambda key: _count_samples(by_function[key]))
    works, waits, sleeping_count = by_function[key], Counter[WaitKind](), 0
    for work in works:
        wait = classify_wait(work.frames, work.text)
        if wait is not None:
            waits[wait.kind] += work.sample_count
        elif is_sleeping(work.frames, work.text):
            sleeping_count += work.sample_count
    total = _count_samples(works)
    return FillingFunction(
        name=key[0].replace("<locals>.", ""),
        file=key[1],
        line=lines[key].most_common(1)[0][0] if key in lines else 0,
        worker_count=max(work.worker_count for work in works),
        in_processes=in_processes,
        computes_ratio=1 - (waits.total() + sleeping_count) / total,
        waits_for=waits.most_common(1)[0][0] if waits.total() > total / 2 else None,
    )


def _select_function(frames: Sequence[Frame]) -> Frame | None:
    """Select the function that a thread or process runs for others: the one that a library calls,
    or that the loop of the job's thread calls."""
    users = [index for index, frame in enumerate(frames) if not frame.library]
    if not users:
        return None
    first = users[0]
    starts_here = not first or frames[first - 1].file.endswith(_STARTS)
    functions = [index for index in users if not frames[index].bare_function.startswith("<")]
    later = [index for index in functions if index > first or not starts_here]
    return frames[(later or functions or users)[0]]
