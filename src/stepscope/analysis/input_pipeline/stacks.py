"""Stack samples: Python time by function, and activity of processes sampled from outside."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline import code_stages
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.steps.phases import PHASE_OF_KIND, PHASES, PhaseSpans
from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import Steps, find_step_at, is_outside_phases


class FunctionTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one function.

    `own` figures are of samples with the function on top of the stack. `total` figures include
    its callees: a sample counts once for a function that is anywhere in the stack.
    """

    function: str
    file: str
    library: str
    """Empty for user code, `python` for the standard library."""
    own_weight: int
    total_weight: int
    own_count: int
    """Number of samples."""
    total_count: int


class FunctionProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Functions by descending own time."""

    sample_count: int
    weight: int
    """Weight of all samples: nanoseconds if the sampling period is known, otherwise their count."""
    functions: list[FunctionTime]


def select_samples(
    samples: StackSamples,
    spans: Spans,
    steps: Steps,
    *,
    phase: str | None = None,
    within: tuple[int, int] | None = None,
    during: intervals.Intervals | None = None,
) -> NDArray[np.bool_]:
    """Mask the samples in some steps of a rank, in one phase of them, and in a range of time.

    Args:
        samples: of the training process, or of a process that works for it.
        spans, steps: of the training process.
        phase: one of `PHASES`; None for all samples.
        within: the first step and the step after the last; None for all samples.
        during: a union; None for all samples.
    """
    selected = np.ones(len(samples.t_ns), dtype=np.bool_)
    if during is not None:
        selected &= intervals.contains(during, samples.t_ns)
    if within is not None:
        step = find_step_at(samples.t_ns, steps)
        selected &= (step >= within[0]) & (step < within[1])
    if phase is not None:
        selected &= find_phase_at(samples.t_ns, spans, steps) == PHASES.index(phase)
    return selected


def profile_functions(samples: StackSamples, mask: NDArray[np.bool_]) -> FunctionProfile:
    """Profile the functions of the samples that a mask selects."""
    codes, weights = samples.stack[mask], samples.weight_ns[mask]
    size = len(samples.stacks)
    weight = np.zeros(size, dtype=np.int64)
    np.add.at(weight, codes, weights)
    count = np.bincount(codes, minlength=size)
    sums: dict[code_stages.Frame, list[int]] = {}
    for code in np.flatnonzero(count).tolist():
        frames = [
            frame for frame in code_stages.parse_stack(samples.stacks[code]) if frame.function
        ]
        for frame in dict.fromkeys(frames):
            frame_sums = sums.setdefault(frame, [0, 0, 0, 0])
            frame_sums[1] += int(weight[code])
            frame_sums[3] += int(count[code])
        if frames:
            sums[frames[-1]][0] += int(weight[code])
            sums[frames[-1]][2] += int(count[code])
    functions = [
        FunctionTime(
            function=frame.function,
            file=frame.file,
            library=frame.library,
            own_weight=own_weight,
            total_weight=total_weight,
            own_count=own_count,
            total_count=total_count,
        )
        for frame, (own_weight, total_weight, own_count, total_count) in sums.items()
    ]
    return FunctionProfile(
        sample_count=len(codes),
        weight=int(weights.sum()),
        functions=sorted(functions, key=lambda f: (-f.own_weight, -f.total_weight, f.function)),
    )


class StackNode(msgspec.Struct, kw_only=True):
    """Function in its place in the stacks, with the functions that it called."""

    function: str
    file: str
    weight: int = 0
    """Of the samples with this path, as of `FunctionProfile`."""
    sample_count: int = 0
    callees: dict[code_stages.Frame, StackNode] = msgspec.field(default_factory=dict)


def build_stack_tree(samples: StackSamples, mask: NDArray[np.bool_]) -> StackNode:
    """Sum the samples that a mask selects by path of calls; the root stands for all of them."""
    root = StackNode(function="", file="")
    codes, weights = samples.stack[mask], samples.weight_ns[mask]
    weight = np.zeros(len(samples.stacks), dtype=np.int64)
    np.add.at(weight, codes, weights)
    counts = np.bincount(codes, minlength=len(samples.stacks))
    for code in np.flatnonzero(counts).tolist():
        node = root
        frames = [
            frame for frame in code_stages.parse_stack(samples.stacks[code]) if frame.function
        ]
        for frame in (None, *frames):
            if frame is not None:
                node = node.callees.setdefault(
                    frame, StackNode(function=frame.function, file=frame.file)
                )
            node.weight += int(weight[code])
            node.sample_count += int(counts[code])
    return root


def measure_stack_depth(spans: Spans, samples: StackSamples) -> float | None:
    """Measure the mean depth of the stacks inside forward passes, in frames; None without samples
    there.

    Args:
        spans: spans of the process.
        samples: samples of the training thread.
    """
    inside = intervals.contains(intervals.union(spans.of("forward").intervals), samples.t_ns)
    if not inside.any():
        return None
    depths = np.array(
        [len(code_stages.parse_stack(stack)) for stack in samples.stacks], dtype=np.int64
    )
    return float(depths[samples.stack[inside]].mean())


_RUNTIME = frozenset(["python", "torch"])
_SAVING_NAMES = re.compile(
    r"^_?(save|persist)(?!_?(image|fig|plot|sample|log|metric))|checkpoint|ckpt|snapshot"
)
"""Functions that write the state of a training."""
_TORCH_PROFILER = re.compile(r"torch/(autograd/profiler\w*\.py|profiler/)")
"""Files of PyTorch's profiler."""
_MODULE_CALL = "Module._call_impl.<locals>.inner"
"""Function of torch that calls a module with hooks."""
_ENGINE_CALL = "_engine_run_backward"
"""Function of torch that runs a backward pass."""
_HOOKS = re.compile(r"\.(?:on|after|before)_\w+$")
_MARK = "record_function"
"""Class of PyTorch's marks, which its optimizers make without a profiler, too."""


def measure_profiler_lines(
    samples: StackSamples, spans: Spans, steps: Steps
) -> dict[tuple[str, int], float]:
    """Measure the share of the time between phases in which the script starts, stops or reads
    PyTorch's profiler, by file and line of the script, largest first.

    Args:
        samples: samples of the training thread.
        spans, steps: of its process.
    """
    if not len(samples):
        return {}
    outside = find_phase_at(samples.t_ns, spans, steps) == PHASES.index("other")
    # Windows of stepscope use the same profiler, in the mode RECORDING, which is in no phase.
    in_profiler = [_is_in_profiler(stack) for stack in samples.stacks]
    total_ns = max(1, int(samples.weight_ns[outside].sum()))
    shares: dict[tuple[str, int], float] = {}
    for row in np.flatnonzero(outside).tolist():
        if not in_profiler[samples.stack[row]]:
            continue
        frames = code_stages.parse_stack(samples.stacks[samples.stack[row]])
        file = next((frame.file for frame in reversed(frames) if not frame.library), "")
        line = (file, int(samples.user_line[row]))
        shares[line] = shares.get(line, 0.0) + int(samples.weight_ns[row]) / total_ns
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


class ScriptLine(NamedTuple):
    """Line of the script in one phase of the step."""

    phase: str
    file: str
    line: int
    function: str


def measure_script_lines(
    samples: StackSamples, spans: Spans, steps: Steps
) -> dict[ScriptLine, float]:
    """Measure the share of each phase in which the training thread runs, or waits in, each line of
    the script: the innermost one of a stack.

    Args:
        samples: samples of the training thread.
        spans, steps: of its process.
    """
    phase = find_phase_at(samples.t_ns, spans, steps)
    inside = phase >= 0
    keys = np.stack([phase, samples.stack, samples.user_line], axis=1)[inside]
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    weight_ns = np.bincount(inverse.ravel(), samples.weight_ns[inside], len(unique))
    totals_ns = np.bincount(phase[inside], samples.weight_ns[inside], len(PHASES)).tolist()
    shares: dict[ScriptLine, float] = {}
    for (code, stack, line), time_ns in zip(unique.tolist(), weight_ns.tolist(), strict=True):
        frames = [f for f in code_stages.parse_stack(samples.stacks[stack]) if not f.library]
        if line and frames:
            key = ScriptLine(PHASES[code], frames[-1].file, line, frames[-1].function)
            shares[key] = shares.get(key, 0.0) + time_ns / totals_ns[code]
    return shares


def _is_in_profiler(stack: str) -> bool:
    if not _TORCH_PROFILER.search(stack):
        return False
    return any(
        _TORCH_PROFILER.search(frame.file) and frame.owner != _MARK
        for frame in code_stages.parse_stack(stack)
    )


def find_training_loop(
    samples: StackSamples, in_phases: NDArray[np.bool_]
) -> list[code_stages.Frame]:
    """Find the frames that all phases share: the training loop and its callers.

    They are in every stack: a function called `load_and_train` is not evidence of loading.
    """
    codes = np.unique(samples.stack[in_phases]).tolist()
    stacks = [code_stages.parse_stack(samples.stacks[code]) for code in codes]
    loop = _find_shared_frames(min(stacks), max(stacks)) if stacks else []
    while loop and loop[-1].library in _RUNTIME:  # a single stack shares its calls with itself
        loop.pop()
    return loop


def select_below(
    loop: Sequence[code_stages.Frame], frames: Sequence[code_stages.Frame]
) -> Sequence[code_stages.Frame]:
    """Select the frames of a stack below the training loop."""
    return frames[len(_find_shared_frames(loop, frames)) :]


def find_savers(
    samples: StackSamples, spans: Spans, loop: Sequence[code_stages.Frame]
) -> set[code_stages.Frame]:
    """Find the functions of user code, below the training loop, that write checkpoints.

    The other work of such a function serves the writing: collecting the state, syncing the file,
    renaming it. That is not true of its callers, which may do anything at the end of an epoch.
    """
    saves = intervals.union(spans.of("checkpoint").intervals)
    first, stop = np.searchsorted(samples.t_ns, [saves.start, saves.end])

    def list_calls(rows: intervals.Int) -> list[list[code_stages.Frame]]:
        inside = (rows >= 0) & (rows < len(samples.t_ns))
        codes = np.unique(samples.stack[rows[inside]]).tolist()
        below = [
            select_below(loop, code_stages.parse_stack(samples.stacks[code])) for code in codes
        ]
        return [[frame for frame in calls if not frame.library] for calls in below]

    writing = np.flatnonzero(intervals.contains(saves, samples.t_ns))
    savers = {frames[-1] for frames in list_calls(writing) if frames}
    # A save that is shorter than the sampling period: what ran before and after it says so.
    short = first == stop
    for frames in list_calls(np.concatenate([first[short] - 1, stop[short]])):
        savers.update(f for f in frames if _SAVING_NAMES.search(f.bare_function.lower()))
    return savers


def _find_shared_frames(
    first: Sequence[code_stages.Frame], second: Sequence[code_stages.Frame]
) -> list[code_stages.Frame]:
    """Find the outer frames that two stacks share."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return [frame for frame, _ in pairs]


def is_in_framework(loop: Sequence[code_stages.Frame], inner: Sequence[code_stages.Frame]) -> bool:
    """Return True if a library has the training loop, and the script does not run below it."""
    return bool(loop) and bool(loop[-1].library) and all(frame.library for frame in inner)


def find_library_function(frames: Sequence[code_stages.Frame]) -> tuple[str, int] | None:
    """Find the innermost hook of a library other than torch, or else its innermost function, as a
    location without a line: a trainer's hooks are what its user can set."""
    functions = [frame for frame in frames if frame.library not in _RUNTIME]
    hooks = [frame for frame in functions if is_hook(frame.function)]
    frame = next(reversed(hooks or functions), None)
    return None if frame is None else (f"{frame.library} {frame.function}", 0)


def is_hook(function: str) -> bool:
    """Return True for the name of a method that a trainer calls at an event.

    >>> is_hook("lightning RichProgressBar.on_train_batch_end"), is_hook("Results.get_cache")
    (True, False)
    """
    return _HOOKS.search(function) is not None


def is_in_callback(frames: Sequence[code_stages.Frame]) -> bool:
    """Return True if torch calls a function of the script as a hook of a module in a forward pass,
    or of a tensor in a backward pass, or XGBoost calls one as the objective of a round.

    The function that calls the hooks of a module calls `forward`, too, also one that was put in its
    place. A backward pass calls functions with a `backward` of their own by another way; a hook
    that runs an optimizer is its step.
    """
    for caller, frame in itertools.pairwise(frames):
        if frame.library:
            continue
        if caller.library == "xgboost":
            return any(outer.function.startswith("Booster.") for outer in frames)
        if caller.library != "torch":
            continue
        name = frame.bare_function
        if caller.function == _MODULE_CALL:
            return "forward" not in name or "hook" in name
        if caller.bare_function == _ENGINE_CALL:
            return not any(inner.library == "torch" and "/optim/" in inner.file for inner in frames)
    return False


def find_phase_at(times: intervals.Int, spans: Spans, steps: Steps) -> NDArray[np.int64]:
    """Find the phase of the training thread at each time, as index into `PHASES`.

    It is -1 outside steps and in evaluation. It is the phase of the host, even for phases that
    were timed on a device.
    """
    nested = PhaseSpans.of_thread_as_recorded(spans, steps.thread)
    phase_spans = nested.spans
    span = nested.find_innermost(times)
    phase_of_kind = np.array([_find_phase(kind, PHASE_OF_KIND) for kind in spans.kinds] or [-1])
    kinds = phase_spans.kind[span] if len(phase_spans) else np.zeros(len(times), dtype=np.int64)
    phases = np.where(span >= 0, phase_of_kind[kinds], PHASES.index("loss"))
    # Time of a step outside its phases is `loss` if a backward pass follows, otherwise `other`.
    phases = np.where(is_outside_phases(times, spans, steps), PHASES.index("other"), phases)
    return np.where(find_step_at(times, steps) >= 0, phases, -1).astype(np.int64)


def _find_phase(kind: str, phases: Mapping[str, str]) -> int:
    return PHASES.index(phases[kind]) if kind in phases else -1


Activity = Literal["data_wait", "forward", "backward", "optimizer", "communication", "other"]
BLOCK_NS = 1_000_000_000
"""Samples of one second are not independent of each other: a step may take as long."""

_ACTIVITIES: tuple[tuple[Activity, str, frozenset[str]], ...] = (
    ("data_wait", "torch/utils/data/dataloader.py", frozenset({"__next__", "__iter__"})),
    ("communication", "torch/distributed/distributed_c10d.py", frozenset()),
    ("backward", "torch/_tensor.py", frozenset({"backward"})),
    ("backward", "torch/autograd/__init__.py", frozenset({"backward", "grad"})),
    ("optimizer", "torch/optim/optimizer.py", frozenset()),
    ("forward", "torch/nn/modules/module.py", frozenset({"_call_impl", "_wrapped_call_impl"})),
)
"""Code of PyTorch by which an activity is told: file, and functions of it; none for all of them."""


class ThreadActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activities of the main thread of one process."""

    sample_count: int
    counts: dict[Activity, int]
    wait_blocks: list[float]
    """Share of samples that wait for a batch, by second."""

    @property
    def is_training(self) -> bool:
        """True if it was seen in PyTorch's training code."""
        return any(count for activity, count in self.counts.items() if activity != "other")


class SampledShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of time, estimated from samples."""

    ratio: float
    standard_error: float
    """From the variation between seconds; at least that of half a second."""


class SampledBatchWork(msgspec.Struct, frozen=True, kw_only=True):
    """Creation of batches, from the stacks of the processes that create them."""

    process_count: int
    busy_ratio: float
    """Share of samples inside the creation of a batch."""
    stages: dict[code_stages.Stage, float]
    """Shares of the samples inside, largest first."""
    label: str
    """Code that has most of the samples of the largest stage."""


def classify_activity(frames: Sequence[code_stages.Frame]) -> Activity:
    """Classify a stack of a training thread by the outermost code of PyTorch that names one."""
    for frame in frames:
        for activity, file, functions in _ACTIVITIES:
            is_named = not functions or frame.bare_function in functions
            if is_named and frame.file.endswith(file):
                return activity
    return "other"


def measure_thread_activity(samples: StackSamples) -> ThreadActivity:
    """Count the activities of a sampled thread; every sample stands for the same time."""
    activities = [classify_activity(code_stages.parse_stack(stack)) for stack in samples.stacks]
    counts = Counter(activities[code] for code in samples.stack.tolist())
    waits: intervals.Mask = np.array([a == "data_wait" for a in activities], dtype=bool)[
        samples.stack
    ]
    _, block = np.unique(samples.t_ns // BLOCK_NS, return_inverse=True)
    wait_blocks = np.bincount(block, weights=waits) / np.bincount(block) if len(block) else block
    return ThreadActivity(
        sample_count=len(samples.t_ns), counts=dict(counts), wait_blocks=wait_blocks.tolist()
    )


def estimate_wait_share(threads: Sequence[ThreadActivity]) -> SampledShare:
    """Estimate the share of time in which training threads wait for batches.

    The standard error is that of the mean of `n` seconds, s / sqrt(n), and at least 1 / (2 n).
    """
    waiting = sum(thread.counts.get("data_wait", 0) for thread in threads)
    blocks = np.array([share for thread in threads for share in thread.wait_blocks])
    spread = float(blocks.std(ddof=1)) if len(blocks) > 1 else 1.0
    return SampledShare(
        ratio=waiting / sum(thread.sample_count for thread in threads),
        standard_error=max(spread / math.sqrt(len(blocks)), 0.5 / len(blocks)),
    )


def measure_sampled_batches(processes: Sequence[StackSamples]) -> SampledBatchWork | None:
    """Measure the creation of batches by some processes; None if none was seen."""
    stages: Counter[code_stages.Stage] = Counter()
    labels: Counter[tuple[code_stages.Stage, str]] = Counter()
    total = 0
    for samples in processes:
        stacks = [code_stages.parse_stack(stack) for stack in samples.stacks]
        staged = [
            code_stages.classify_stack(s, collating=code_stages.is_outside_dataset(s))
            for s in stacks
        ]
        total += len(samples.t_ns)
        for code, count in Counter(samples.stack.tolist()).items():
            stack = staged[code]
            if stack is not None:
                stages[stack.stage] += count
                labels[stack.stage, stack.label] += count
    inside = stages.total()
    if not inside:
        return None
    largest = stages.most_common(1)[0][0]
    label = max((pair for pair in labels if pair[0] == largest), key=lambda pair: labels[pair])[1]
    return SampledBatchWork(
        process_count=len(processes),
        busy_ratio=inside / total,
        stages={stage: count / inside for stage, count in stages.most_common()},
        label=label,
    )
