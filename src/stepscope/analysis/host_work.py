"""Work of the training thread outside the phases of a step, from its stack samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.code_stages import SAMPLE_FUNCTIONS, Frame, parse_stack
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.analysis.phases import find_device_busy
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import Steps, find_step_at, is_outside_phases
from stepscope.intervals import Int, Intervals, contains, overlap, union

HostCause = Literal["host_sync", "logging", "data_preparation", "checkpoint", "python"]

HOST_CAUSE_LABELS: dict[HostCause, str] = {
    "host_sync": "reading values from tensors",
    "logging": "logging",
    "data_preparation": "preparing batches",
    "checkpoint": "writing checkpoints",
    "python": "other Python",
}

_SYNC = re.compile(
    r"\.(item|tolist|cpu|numpy)\(|synchronize\(|\bfloat\(|\bint\(|\bbool\(|isnan\(|isfinite\("
)
_LOGGING = re.compile(
    r"\bprint\(|\blogg(er|ing)\b|\b(self|run|trainer|fabric|accelerator)\.log(_\w+)?\(|\bwandb\b"
    r"|\.add_(scalar|histogram|image|figure|text|video|audio)|\bwriter\.|\btqdm\b|\bflush\("
    r"|\b(savefig|imsave|save_image)\("
)
_LOGGING_LIBRARIES = frozenset(
    (
        *("wandb", "tensorboard", "tensorboardX", "mlflow", "comet_ml", "neptune", "clearml"),
        *("aim", "visdom", "loguru", "matplotlib", "plotly", "seaborn", "tqdm", "rich"),
    )
)
_LOGGING_NAMES = re.compile(
    r"(^|_)(log(s|ged|ging)?(?!_?(prob|softmax|sum|it|like|space|abs))|track|report|publish|notify"
    r"|emit|plot|visuali[sz]e|savefig|imsave|save_images?)(s|d|ed|t?ing)?(_|$)"
    r"|(^|_)(add_)?(scalar|histogram)s?(_|$)|(^|_)add_(image|figure|text|video|audio)s?(_|$)"
    r"|logger|tracker|reporter|telemetry|summarywriter"
)
"""Functions, and classes with their methods, that report on the training."""
_READING_METHODS = frozenset(
    ["__array__", "__contains__", "__format__", "__iter__", "__repr__", "__str__"]
)
"""Methods that Python calls where a torch tensor is used as a number or a sequence."""
_SAVING = re.compile(r"\bfsync\(|\bsave_(checkpoint|state|model|pretrained)\(")
_DATA = re.compile(
    r"(?<![A-Za-z])((get|make|sample|generate|next|fetch|prepare)_(mini_?)?batch(es)?"
    r"|from_numpy|memmap|(load|read|decode|augment|transform|collate)(?!_(state|checkpoint|model|weights))"
    r"(s|ed|ing|ation)?(?![a-z]))|\bnext\("
)
_DATA_NAMES = re.compile(
    r"(^|_)(sampl(e|es|er|ing)|draw|negatives?|mini_?batch(es)?|batch(es)?|pairs|triplets)(_|$)"
)
"""Functions that select the inputs of the model."""

READING_RATIO = 0.15
"""Minimum share of a function's time in reads of tensor values for reading to be its purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """One line of user code and its share of the time outside phases."""

    file: str
    line: int
    text: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """Causes of the time outside phases; ratios are shares of that time."""

    sample_count: int
    causes: dict[HostCause, float]
    lines: list[HostLine]
    """Lines of user code with the largest shares."""


def attribute_host_work(spans: Spans, samples: StackSamples, steps: Steps) -> HostWork | None:
    """Attribute the time outside all phases to causes; None without samples there.

    Args:
        spans: spans of the process.
        samples: samples of the training thread.
        steps: steps of the process.
    """
    thread_spans = spans.take(spans.thread == steps.thread)
    # Host work is free while a device is busy: that time is not in the phase `other` of the step.
    busy = find_device_busy(thread_spans)
    outside = is_outside_phases(samples.t_ns, spans, steps) & ~contains(busy, samples.t_ns)
    if not outside.any():
        return None
    loop = _find_training_loop(samples, (find_step_at(samples.t_ns, steps) >= 0) & ~outside)
    savers = _find_savers(samples, thread_spans, len(loop))
    pairs = np.stack([samples.stack[outside], samples.user_line[outside]], axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    spent = np.zeros(len(unique), dtype=np.int64)
    np.add.at(spent, inverse.ravel(), _weigh_without_collections(samples, thread_spans)[outside])
    total_ns = max(1, int(spent.sum()))
    by_function: dict[str, dict[HostCause, int]] = {}
    lines: dict[tuple[str, int], int] = {}
    for (stack, line), time_ns in zip(unique.tolist(), spent.tolist(), strict=True):
        frames = parse_stack(samples.stacks[stack])
        location = _find_user_line(frames, line)
        text = samples.line_text(frames, line)
        inner = frames[len(_find_shared_frames(loop, frames)) :]
        times = by_function.setdefault(_find_user_function(inner), {})
        cause = _classify_cause(inner, text, waits=len(busy.start) > 0)
        cause = "checkpoint" if savers.intersection(inner) else cause
        times[cause] = times.get(cause, 0) + time_ns
        if location:
            lines[location] = lines.get(location, 0) + time_ns
    top = sorted(lines.items(), key=lambda item: -item[1])[:5]
    return HostWork(
        sample_count=int(outside.sum()),
        causes=_sum_causes(by_function, total_ns),
        lines=[
            HostLine(file=f, line=n, text=samples.sources.get((f, n), ""), ratio=time_ns / total_ns)
            for (f, n), time_ns in top
        ],
    )


def _weigh_without_collections(samples: StackSamples, spans: Spans) -> Int:
    """Compute the nanoseconds that each sample represents, without garbage collection.

    The garbage collector keeps the interpreter lock, so the sampler runs after it: the line that
    runs then did not take the time of the collection, which is a phase of its own.
    """
    collections = union(spans.of("garbage_collection").intervals)
    sampled = Intervals(samples.t_ns - samples.weight_ns, samples.t_ns)
    return samples.weight_ns - overlap(sampled, collections)


def _find_user_function(frames: Sequence[Frame]) -> str:
    """Find the innermost function of user code, '' in the training loop itself."""
    functions = [frame.function for frame in frames if not frame.library]
    return functions[-1] if functions else ""


def _sum_causes(
    by_function: Mapping[str, Mapping[HostCause, int]], total_ns: int
) -> dict[HostCause, float]:
    """Sum the causes over all functions as shares, largest first.

    Other code of a function that reads values from tensors (loops over elements, sums, formatting)
    serves the reading: plain Python in a function with enough time on such lines counts as
    synchronization too.
    """
    causes: dict[HostCause, float] = {}
    for function, times in by_function.items():
        reads = times.get("host_sync", 0) >= READING_RATIO * sum(times.values())
        for cause, time_ns in times.items():
            charged: HostCause = "host_sync" if function and reads and cause == "python" else cause
            causes[charged] = causes.get(charged, 0.0) + time_ns / total_ns
    return dict(sorted(causes.items(), key=lambda item: -item[1]))


def _find_training_loop(samples: StackSamples, in_phases: NDArray[np.bool_]) -> list[Frame]:
    """Find the frames that all phases share: the training loop and its callers.

    They are in every stack: a function called `load_and_train` is not evidence of loading.
    """
    codes = np.unique(samples.stack[in_phases]).tolist()
    stacks = [parse_stack(samples.stacks[code]) for code in codes]
    return _find_shared_frames(min(stacks), max(stacks)) if stacks else []


def _find_savers(samples: StackSamples, spans: Spans, depth: int) -> set[Frame]:
    """Find the functions of user code, below the training loop, that write checkpoints.

    The other work of such a function serves the writing: collecting the state, syncing the file,
    renaming it. That is not true of its callers, which may do anything at the end of an epoch.
    """
    writing = contains(union(spans.of("checkpoint").intervals), samples.t_ns)
    codes = np.unique(samples.stack[writing]).tolist()
    stacks = [parse_stack(samples.stacks[code]) for code in codes]
    user_stacks = [[frame for frame in stack[depth:] if not frame.library] for stack in stacks]
    return {frames[-1] for frames in user_stacks if frames}


def _find_shared_frames(first: Sequence[Frame], second: Sequence[Frame]) -> list[Frame]:
    """Find the outer frames that two stacks share."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return [frame for frame, _ in pairs]


def _find_user_line(frames: Sequence[Frame], line: int) -> tuple[str, int] | None:
    for frame in reversed(frames):
        if frame.library == "":
            return frame.file, line
    return None


def _classify_cause(frames: Sequence[Frame], text: str, *, waits: bool) -> HostCause:
    """Classify one stack; the innermost evidence counts, so logging in a sync line is logging.

    Args:
        frames: the stack below the training loop.
        text: text of the running line.
        waits: reading a value from a tensor waits for a device. Without a device, reading is
            part of its purpose.
    """
    for frame in reversed(frames):
        if frame.library in _LOGGING_LIBRARIES or (
            frame.library == "python"
            and frame.module in {"logging", "__init__"}
            and "/logging/" in frame.file
        ):
            return "logging"
        if frame.library == "":
            break
    if _SAVING.search(text):
        return "checkpoint"
    if _produces_values(frames):
        return "logging" if _LOGGING.search(text) else "data_preparation"
    cause = _classify_by_names(frames)
    if cause == "logging" and not waits:
        return cause
    if _SYNC.search(text) or _reads_tensor(frames):
        return "host_sync"
    if _LOGGING.search(text):
        return "logging"
    return cause or ("data_preparation" if _DATA.search(text) else "python")


def _reads_tensor(frames: Sequence[Frame]) -> bool:
    """Return True if torch itself reads the elements of a tensor, or formats it."""
    return any(
        frame.library == "torch"
        and (
            frame.module == "_tensor_str"
            or (frame.module == "_tensor" and frame.bare_function in _READING_METHODS)
        )
        for frame in frames
    )


def _classify_by_names(frames: Sequence[Frame]) -> HostCause | None:
    """Classify user functions by their names.

    The outermost name shows the purpose of everything inside: reporting to a server includes
    reading its answer.
    """
    for frame in frames:
        if not frame.library and frame.bare_function:
            if any(_LOGGING_NAMES.search(n.lower()) for n in (frame.bare_function, frame.owner)):
                return "logging"
            if _DATA.search(frame.bare_function) or _DATA_NAMES.search(frame.bare_function):
                return "data_preparation"
    return None


def _produces_values(frames: Sequence[Frame]) -> bool:
    """Return True if user code produces values for a caller that iterates or indexes.

    A training loop takes its batches from such code, under any name. The body of a context manager
    is a generator too, and does not count.
    """
    caller_module = ""
    for frame in frames:
        is_context_manager = frame.generator and caller_module == "contextlib"
        if not frame.library and (
            frame.bare_function in SAMPLE_FUNCTIONS or (frame.generator and not is_context_manager)
        ):
            return True
        caller_module = frame.module
    return False
