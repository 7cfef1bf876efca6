"""What the training thread does between its phases, from its stack samples."""

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
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import Steps, device_busy, in_no_phase, steps_of
from stepscope.intervals import Int, Intervals, contains, overlap, union

HostCause = Literal["host_sync", "logging", "data_preparation", "checkpoint", "python"]

HOST_CAUSE_NAMES: dict[HostCause, str] = {
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
"""Functions, and classes with their methods, that tell somebody of the training."""
_READING_METHODS = frozenset(
    ["__array__", "__contains__", "__format__", "__iter__", "__repr__", "__str__"]
)
"""Of torch's tensors: what Python calls where a tensor is used as a number or a sequence."""
_SAVING = re.compile(r"\bfsync\(|\bsave_(checkpoint|state|model|pretrained)\(")
_DATA = re.compile(
    r"(?<![A-Za-z])((get|make|sample|generate|next|fetch|prepare)_(mini_?)?batch(es)?"
    r"|from_numpy|memmap|(load|read|decode|augment|transform|collate)(?!_(state|checkpoint|model|weights))"
    r"(s|ed|ing|ation)?(?![a-z]))|\bnext\("
)
_DATA_NAMES = re.compile(
    r"(^|_)(sampl(e|es|er|ing)|draw|negatives?|mini_?batch(es)?|batch(es)?|pairs|triplets)(_|$)"
)
"""Functions that choose what the model is given."""

READING_RATIO = 0.15
"""A function that spends this share of its time reading values from tensors is there for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """One line of the user's code and its share of the time between phases."""

    file: str
    line: int
    text: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """What fills the time between phases; ratios are shares of that time."""

    sample_count: int
    causes: dict[HostCause, float]
    lines: list[HostLine]
    """The lines of the user's code with the largest shares."""


def find_host_work(spans: Spans, samples: StackSamples, steps: Steps) -> HostWork | None:
    """Attribute the time outside all phases, None without samples there.

    Args:
        samples: of the training thread.
    """
    own = spans.take(spans.thread == steps.thread)
    # What the host does while a device is busy costs nothing, and is in no phase of the step.
    busy = device_busy(own)
    between = in_no_phase(samples.t_ns, spans, steps) & ~contains(busy, samples.t_ns)
    if not between.any():
        return None
    loop = _training_loop(samples, (steps_of(samples.t_ns, steps) >= 0) & ~between)
    savers = _savers(samples, own, len(loop))
    pairs = np.stack([samples.stack[between], samples.user_line[between]], axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    spent = np.zeros(len(unique), dtype=np.int64)
    np.add.at(spent, inverse.ravel(), _without_collections(samples, own)[between])
    total = max(1, int(spent.sum()))
    by_function: dict[str, dict[HostCause, int]] = {}
    lines: dict[tuple[str, int], int] = {}
    for (stack, line), time_ns in zip(unique.tolist(), spent.tolist(), strict=True):
        frames = parse_stack(samples.stacks[stack])
        place = _user_place(frames, line)
        text = samples.line_text(frames, line)
        inner = frames[len(_shared(loop, frames)) :]
        times = by_function.setdefault(_function(inner), {})
        cause = _cause(inner, text, waits=len(busy.start) > 0)
        cause = "checkpoint" if savers.intersection(inner) else cause
        times[cause] = times.get(cause, 0) + time_ns
        if place:
            lines[place] = lines.get(place, 0) + time_ns
    top = sorted(lines.items(), key=lambda item: -item[1])[:5]
    return HostWork(
        sample_count=int(between.sum()),
        causes=_causes(by_function, total),
        lines=[
            HostLine(file=f, line=n, text=samples.sources.get((f, n), ""), ratio=time_ns / total)
            for (f, n), time_ns in top
        ],
    )


def _without_collections(samples: StackSamples, spans: Spans) -> Int:
    """Nanoseconds that each sample stands for.

    The garbage collector keeps the interpreter lock, so the sampler looks when it is done: the
    line that runs then has not taken the time of the collection, which is a phase of its own.
    """
    collected = union(spans.of("garbage_collection").intervals)
    stood_for = Intervals(samples.t_ns - samples.weight_ns, samples.t_ns)
    return samples.weight_ns - overlap(stood_for, collected)


def _function(frames: Sequence[Frame]) -> str:
    """The innermost of the user's own functions, '' in the training loop itself."""
    own = [frame.function for frame in frames if not frame.library]
    return own[-1] if own else ""


def _causes(
    by_function: Mapping[str, Mapping[HostCause, int]], total: int
) -> dict[HostCause, float]:
    """Shares of the causes, largest first.

    What a function does around reading values from tensors (looping over their elements, adding
    up, formatting) serves the reading: plain Python in a function that spends enough of its time
    on such lines counts as synchronisation too.
    """
    causes: dict[HostCause, float] = {}
    for function, times in by_function.items():
        reads = times.get("host_sync", 0) >= READING_RATIO * sum(times.values())
        for cause, time_ns in times.items():
            charged: HostCause = "host_sync" if function and reads and cause == "python" else cause
            causes[charged] = causes.get(charged, 0.0) + time_ns / total
    return dict(sorted(causes.items(), key=lambda item: -item[1]))


def _training_loop(samples: StackSamples, in_phases: NDArray[np.bool_]) -> list[Frame]:
    """Frames that phases have in common: the training loop and its callers.

    They are there whatever the thread does: a function called `load_and_train` is no evidence
    that it loads.
    """
    codes = np.unique(samples.stack[in_phases]).tolist()
    stacks = [parse_stack(samples.stacks[code]) for code in codes]
    return _shared(min(stacks), max(stacks)) if stacks else []


def _savers(samples: StackSamples, spans: Spans, depth: int) -> set[Frame]:
    """The user's own functions, below the training loop, that write checkpoints.

    What else such a function does serves the writing: making the state, syncing the file,
    renaming it. Not so its callers, which may do anything at the end of an epoch.
    """
    writing = contains(union(spans.of("checkpoint").intervals), samples.t_ns)
    codes = np.unique(samples.stack[writing]).tolist()
    stacks = [parse_stack(samples.stacks[code]) for code in codes]
    own = [[frame for frame in stack[depth:] if not frame.library] for stack in stacks]
    return {frames[-1] for frames in own if frames}


def _shared(one: Sequence[Frame], other: Sequence[Frame]) -> list[Frame]:
    """The outer frames that two stacks have in common."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [frame for frame, _ in pairs]


def _user_place(frames: Sequence[Frame], line: int) -> tuple[str, int] | None:
    for frame in reversed(frames):
        if frame.library == "":
            return frame.file, line
    return None


def _cause(frames: Sequence[Frame], text: str, *, waits: bool) -> HostCause:
    """The innermost evidence counts: a logging call inside a synchronising line is logging.

    Args:
        waits: there is a device, so that reading a value from a tensor waits for it; without one
            it is a part of what it is read for.
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
    if _feeds(frames):
        return "logging" if _LOGGING.search(text) else "data_preparation"
    named = _by_names(frames)
    if named == "logging" and not waits:
        return named
    if _SYNC.search(text) or _reads_tensor(frames):
        return "host_sync"
    if _LOGGING.search(text):
        return "logging"
    return named or ("data_preparation" if _DATA.search(text) else "python")


def _reads_tensor(frames: Sequence[Frame]) -> bool:
    """Whether torch itself takes a tensor to pieces, or into text."""
    return any(
        frame.library == "torch"
        and (
            frame.module == "_tensor_str"
            or (frame.module == "_tensor" and frame.bare_function in _READING_METHODS)
        )
        for frame in frames
    )


def _by_names(frames: Sequence[Frame]) -> HostCause | None:
    """What the user's functions say of themselves. The outermost says what all of it is for: who
    reports to a server reads its answer, too."""
    for frame in frames:
        if not frame.library and frame.bare_function:
            if any(_LOGGING_NAMES.search(n.lower()) for n in (frame.bare_function, frame.owner)):
                return "logging"
            if _DATA.search(frame.bare_function) or _DATA_NAMES.search(frame.bare_function):
                return "data_preparation"
    return None


def _feeds(frames: Sequence[Frame]) -> bool:
    """Whether values are made for somebody who iterates or indexes: what a training loop takes
    its batches from, whatever it is called. The body of a context manager is a generator too."""
    above = ""
    for frame in frames:
        managed = frame.generator and above == "contextlib"
        if not frame.library and (
            frame.bare_function in SAMPLE_FUNCTIONS or (frame.generator and not managed)
        ):
            return True
        above = frame.module
    return False
