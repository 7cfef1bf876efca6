"""Work of the training thread outside the phases of a step, and data preparation and callbacks
inside them, from stack samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline import code_stages, data_preparation, stacks
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.input_pipeline.code_stages import Frame, parse_call, parse_stack
from stepscope.analysis.input_pipeline.waits import Wait, classify_wait, is_sleeping
from stepscope.analysis.steps.phases import COMPUTE_PHASES, PHASES, find_device_busy
from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import Steps

HostCause = Literal[
    "host_sync",
    "logging",
    "data_preparation",
    "input_wait",
    "wait",
    "sleeping",
    "checkpoint",
    "optimizer",
    "model",
    "framework",
    "model_callbacks",
    "python",
]

HOST_CAUSE_LABELS: dict[HostCause, str] = {
    "host_sync": "reading values from tensors",
    "logging": "logging",
    "data_preparation": "preparing batches",
    "input_wait": "waiting for batches",
    "wait": "waiting",
    "sleeping": "sleeping",
    "checkpoint": "writing checkpoints",
    "optimizer": "optimizer of a library",
    "model": "model of a library",
    "framework": "calls of the framework",
    "model_callbacks": "functions that the model calls",
    "python": "other Python",
}

_SYNC = re.compile(
    r"\.(item|tolist|cpu|numpy)\(|synchronize\(|(?<![\w.])(float|int|bool)\(|isnan\(|isfinite\("
)
_LOGGING = re.compile(
    r"\bprint\(|\blogg(er|ing)\b|\b(self|run|trainer|fabric|accelerator)\.log(_\w+)?\(|\bwandb\b"
    r"|\.add_(scalar|histogram|image|figure|text|video|audio)|\bwriter\.|\btqdm\b|\bflush\("
    r"|\b(savefig|imsave|save_image)\("
    r"|\b\w*(log|journal|history|metrics)(_?file)?\.(write|writerow|writelines|flush|fileno)\("
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
    r"|logger|tracker|reporter|telemetry|journal"
    r"|(summary|histogram|event(file)?|metrics?|scalars?|csv|log)writer"
)
"""Functions, and classes with their methods, that report on the training."""
_READS_TENSOR = re.compile(r"\.(item|tolist|cpu|numpy)\(|synchronize\(")
_OPTIMIZERS = re.compile(r"/optim(izers?)?(\.py|/)")
"""Files of optimizers in libraries, such as thinc's and fastai's, that are not those of torch."""
_CHECKPOINTS = re.compile(
    r"(?<!/torch/utils)(?<!/activation_checkpointing)/checkpoint(s|ing)?(/|\.py)"
)
"""Files of libraries that write checkpoints, such as orbax's, beside the threads that do. Those of
PyTorch and DeepSpeed that recompute activations are others."""
_SAVING = re.compile(
    r"\bsave_(checkpoint|state|model|pretrained|weights)\(|\btorch\.save\(|\bsave_file\("
    r"|(\bpickle\.dump|\b(np|numpy)\.savez?(_compressed)?)\([^)]*"
    r"(state|model|weights|param|checkpoint|ckpt)"
)
"""Lines that write the state of a model. Flushing a file is no evidence of what is in it."""
_DATA = re.compile(
    r"(?<![A-Za-z])((get|make|sample|generate|next|fetch|prepare)_(mini_?)?batch(es)?"
    r"|memmap|(load|read|decode|augment|transform|collate)(?!_(state|checkpoint|model|weights))"
    r"(s|ed|ing|ation)?(?![a-z]))|\bnext\("
)
_DATA_NAMES = re.compile(
    r"(^|_)(sampl(e|es|er|ing)|draw|negatives?|mini_?batch(es)?|batch(es)?|pairs|triplets)(_|$)"
)
"""Functions that select the inputs of the model."""

MIN_CALL_RATIO = 0.8
"""Share of the time of a line from which a call in it stands for the line."""
MAX_LINES = 5
"""Lines of a phase that are named."""
READING_RATIO = 0.15
"""Minimum share of a function's time in reads of tensor values for reading to be its purpose."""


class HostLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the script, or a function of a library, and its share of a phase."""

    file: str
    line: int
    """0 for a function of a library, which stands for its calls in no line of the script."""
    function: str
    """Function of the script that has the line; '' for the training loop itself."""
    text: str
    """Text of the line, or of the call in it that takes nearly all of its time."""
    phase: str
    cause: HostCause
    source: str
    """Library or kind of work behind the cause; '' for the script's own code."""
    ratio: float
    """Share of the time in the phase."""


class HostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Causes of the time outside phases, and data preparation inside the compute phases."""

    sample_count: int
    """Samples outside phases."""
    causes: dict[HostCause, float]
    """Shares of the time outside phases, largest first."""
    callbacks: dict[str, float]
    """Share of each compute phase in functions of the script that the model calls: hooks and
    objectives."""
    preparation: dict[str, float]
    """Share of each compute phase in which data are prepared."""
    phase_samples: dict[str, int]
    """Samples by phase."""
    lines: list[HostLine]
    """Largest lines of each phase; in compute phases only those that run Python."""


def attribute_host_work(spans: Spans, samples: StackSamples, steps: Steps) -> HostWork | None:
    """Attribute the time of the training thread to causes; None without samples in the steps.

    Args:
        spans: spans of the process.
        samples: samples of the training thread.
        steps: steps of the process.
    """
    thread_spans = spans.on_thread(steps.thread)
    # Host work is free while a device is busy: that time is in the phases of the device.
    busy = find_device_busy(thread_spans)
    phase = stacks.find_phase_at(samples.t_ns, spans, steps)
    is_compute = np.isin(phase, [PHASES.index(name) for name in COMPUTE_PHASES])
    outside = phase == PHASES.index("other")
    is_free = ~intervals.contains(busy, samples.t_ns)
    has_begun = ~samples.find_entries()
    selected = (outside | is_compute) & is_free & has_begun
    if not selected.any():
        return None
    loop = stacks.find_training_loop(samples, (phase >= 0) & ~outside)
    reader = _StackReader(
        samples=samples,
        loop=loop,
        savers=frozenset(stacks.find_savers(samples, thread_spans, loop)),
        training=_find_training_functions(samples, is_compute & (phase != PHASES.index("loss"))),
        model_calls=_find_model_calls(samples, phase == PHASES.index("forward"), loop),
        waits=len(busy.start) > 0,
    )
    keys = np.stack([phase, samples.stack, samples.user_line], axis=1)[selected]
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    spent = np.zeros(len(unique), dtype=np.int64)
    weight_ns = _weigh_without_collections(samples, thread_spans)
    np.add.at(spent, inverse.ravel(), weight_ns[selected])
    # Device time belongs to the compute phases, and to no time between them.
    counted = (is_compute | (outside & is_free)) & has_begun
    totals = np.bincount(phase[counted], weight_ns[counted], len(PHASES)).astype(np.int64)
    work = _WorkSums(dict(zip(PHASES, totals.tolist(), strict=True)))
    for (code, stack, line), time_ns in zip(unique.tolist(), spent.tolist(), strict=True):
        work.add(PHASES[code], reader.read(PHASES[code], stack, line), time_ns)
    counts = np.bincount(phase[selected], minlength=len(PHASES)).tolist()
    return HostWork(
        sample_count=int((outside & is_free & has_begun).sum()),
        causes=work.sum_causes(),
        callbacks=work.sum_in_phases("model_callbacks"),
        preparation=work.sum_in_phases("data_preparation"),
        phase_samples={name: n for name, n in zip(PHASES, counts, strict=True) if n},
        lines=work.list_lines(samples),
    )


class _StackWork(NamedTuple):
    """Work that one stack shows."""

    function: str
    """Innermost function of user code, '' in the training loop itself."""
    location: tuple[str, int] | None
    """File and line; None where the time is not that of Python code."""
    cause: HostCause
    source: str
    call: int
    """Number of the running call in the line."""


class _StackReader(msgspec.Struct, frozen=True, kw_only=True):
    """Classification of the stacks of one training thread."""

    samples: StackSamples
    loop: Sequence[Frame]
    """Training loop and its callers: in every stack, so no evidence of anything."""
    savers: frozenset[Frame]
    training: frozenset[Frame]
    """Functions that call the model or are part of it."""
    model_calls: frozenset[Frame]
    """Functions of libraries that the loop calls, and that call modules."""
    waits: bool
    """Reading a value from a tensor waits for a device."""

    def read(self, phase: str, stack: int, line: int) -> _StackWork:
        """Classify one stack with the line of user code that it runs."""
        frames = parse_stack(self.samples.stacks[stack])
        inner = stacks.select_below(self.loop, frames)
        # Below the loop of a framework, the line of the script is the call that started it.
        is_in_framework = stacks.is_in_framework(self.loop, inner)
        text = "" if is_in_framework else self.samples.running_text(stack, line)
        preparation = data_preparation.find_preparation(
            inner, text, self.samples.functions, self.training, loop=self.loop
        )
        cause: HostCause
        if phase == "other":
            running = text if parse_call(self.samples.stacks[stack]) else ""
            cause = _classify_cause(
                inner,
                text,
                waits=self.waits,
                preparation=preparation,
                training=self.training,
                wait=classify_wait(frames, running, text),
                sleeps=is_sleeping(frames, running),
            )
            cause = "checkpoint" if self.savers.intersection(inner) else cause
            if any(f.library not in {"", "torch"} and _OPTIMIZERS.search(f.file) for f in inner):
                cause = "optimizer"
            elif cause == "python" and inner and inner[0] in self.model_calls:
                cause = "model"
            elif cause == "python" and data_preparation.runs_tensors(inner):
                cause = "framework"
        else:
            prepares = preparation is not None and preparation.reads
            cause = "data_preparation" if prepares else "python"
            if stacks.is_in_callback(frames):
                cause = "model_callbacks"
        source = ""
        if cause == "data_preparation" and preparation is not None:
            source = preparation.source
        elif cause == "python":
            source = data_preparation.find_environment_library(inner)
        if cause == "framework":
            runs_python = not data_preparation.is_training_call(inner)
        elif cause == "model":
            runs_python = False
        else:
            runs_python = (
                phase == "other" or cause != "python" or not data_preparation.runs_tensors(inner)
            )
        location = None
        if runs_python and is_in_framework:
            location = stacks.find_library_function(inner)
        elif runs_python:
            location = _find_user_line(frames, line)
        call = parse_call(self.samples.stacks[stack])
        return _StackWork(_find_user_function(inner), location, cause, source, call)


class _WorkSums:
    """Sums of the time by cause, function and line."""

    def __init__(self, total_ns: Mapping[str, int]) -> None:
        self._total_ns = total_ns
        """Sampled time by phase."""
        self._functions: dict[str, dict[HostCause, int]] = {}
        self._inside: dict[tuple[HostCause, str], int] = {}
        """Causes inside the compute phases that are no part of the model."""
        self._lines: dict[tuple[str, tuple[str, int]], dict[tuple[HostCause, str], int]] = {}
        self._calls: dict[tuple[str, tuple[str, int]], dict[int, int]] = {}
        self._function_of_line: dict[tuple[str, int], str] = {}

    def add(self, phase: str, work: _StackWork, time_ns: int) -> None:
        """Add the time of one stack."""
        if phase == "other":
            times = self._functions.setdefault(work.function, {})
            times[work.cause] = times.get(work.cause, 0) + time_ns
        elif work.cause != "python":
            inside = (work.cause, phase)
            self._inside[inside] = self._inside.get(inside, 0) + time_ns
        if work.location is not None:
            causes = self._lines.setdefault((phase, work.location), {})
            key = (work.cause, work.source)
            causes[key] = causes.get(key, 0) + time_ns
            calls = self._calls.setdefault((phase, work.location), {})
            calls[work.call] = calls.get(work.call, 0) + time_ns
            self._function_of_line[work.location] = work.function

    def sum_causes(self) -> dict[HostCause, float]:
        """Sum the causes of the time outside phases as shares of it, largest first."""
        return _sum_causes(self._functions, max(1, self._total_ns.get("other", 0)))

    def sum_in_phases(self, cause: HostCause) -> dict[str, float]:
        """Sum a cause in each compute phase as a share of the phase."""
        return {
            phase: time_ns / self._total_ns[phase]
            for (inside, phase), time_ns in self._inside.items()
            if inside == cause and time_ns
        }

    def list_lines(self, samples: StackSamples) -> list[HostLine]:
        """List the largest lines of each phase, with their main cause."""
        lines = []
        for (phase, (file, line)), causes in self._lines.items():
            cause, source = max(causes, key=lambda key: causes[key])
            calls = self._calls[phase, (file, line)]
            call = max(calls, key=lambda call: calls[call])
            call = call if calls[call] >= MIN_CALL_RATIO * sum(calls.values()) else 0
            lines.append(
                HostLine(
                    file=file,
                    line=line,
                    function=self._function_of_line[file, line],
                    text=samples.sources.get((file, line, call), ""),
                    phase=phase,
                    cause=cause,
                    source=source,
                    ratio=sum(causes.values()) / max(1, self._total_ns[phase]),
                )
            )
        lines.sort(key=lambda line: -line.ratio)
        ranks: dict[str, int] = {}
        selected = []
        for entry in lines:
            ranks[entry.phase] = ranks.get(entry.phase, 0) + 1
            if ranks[entry.phase] <= MAX_LINES and entry.ratio > 0:
                selected.append(entry)
        return selected


def _find_training_functions(
    samples: StackSamples, in_model: NDArray[np.bool_]
) -> frozenset[Frame]:
    """Find the functions of user code that call the model or are part of it."""
    codes = np.unique(samples.stack[in_model]).tolist()
    frames = {frame for code in codes for frame in parse_stack(samples.stacks[code])}
    return frozenset(frame for frame in frames if not frame.library)


def _find_model_calls(
    samples: StackSamples, in_forward: NDArray[np.bool_], loop: Sequence[Frame]
) -> frozenset[Frame]:
    """Find the functions of libraries that the training loop of the script calls, and that call
    modules: models that are no modules themselves, or replace their call, as GPyTorch's do."""
    if not loop or loop[-1].library:
        return frozenset()
    calls = set()
    for code in np.unique(samples.stack[in_forward]).tolist():
        inner = stacks.select_below(loop, parse_stack(samples.stacks[code]))
        if inner and inner[0].library not in {"", "python", "torch"}:
            calls.add(inner[0])
    return frozenset(calls)


def _weigh_without_collections(samples: StackSamples, spans: Spans) -> intervals.Int:
    """Compute the nanoseconds that each sample represents, without garbage collection.

    The garbage collector keeps the interpreter lock, so the sampler runs after it: the line that
    runs then did not take the time of the collection, which is a phase of its own.
    """
    collections = intervals.union(spans.of("garbage_collection").intervals)
    sampled = intervals.Intervals(samples.t_ns - samples.weight_ns, samples.t_ns)
    return samples.weight_ns - intervals.overlap(sampled, collections)


def _find_user_function(frames: Sequence[Frame]) -> str:
    """Find the innermost function of user code, '' in the training loop itself."""
    users = (frame for frame in reversed(frames) if not frame.library)
    inner = (f.function for f in users if f.bare_function not in code_stages.COMPREHENSIONS)
    return next(inner, "")


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


def _find_user_line(frames: Sequence[Frame], line: int) -> tuple[str, int] | None:
    for frame in reversed(frames):
        if frame.library == "":
            return frame.file, line
    return None


def _classify_cause(
    frames: Sequence[Frame],
    text: str,
    *,
    waits: bool,
    preparation: data_preparation.Preparation | None = None,
    training: frozenset[Frame] = frozenset(),
    wait: Wait | None = None,
    sleeps: bool = False,
) -> HostCause:
    """Classify one stack; the innermost evidence counts, so logging in a sync line is logging.

    Args:
        frames: the stack below the training loop.
        text: text of the running line.
        waits: reading a value from a tensor waits for a device. Without a device, reading is
            part of its purpose.
        preparation: evidence that the stack prepares data.
        training: functions that call the model: their names say nothing of what they do now.
        wait: what the thread waits for.
        sleeps: the thread sleeps.
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
    if _SAVING.search(text) or any(f.library and _CHECKPOINTS.search(f.file) for f in frames):
        return "checkpoint"
    side_frames = [frame for frame in frames if frame.library or frame not in training]
    if wait is not None and not data_preparation.find_environment_library(side_frames):
        return _classify_waiting(side_frames, wait)
    if data_preparation.is_simulation(side_frames):
        return "python"
    if data_preparation.find_pipeline(frames) is not None:
        return "data_preparation"
    if data_preparation.produces_values(frames):
        return "logging" if _LOGGING.search(text) else "data_preparation"
    cause = _classify_by_names(side_frames)
    if cause == "logging" and not waits:
        return cause
    reads = preparation is not None and preparation.reads and not _READS_TENSOR.search(text)
    if reads and cause != "logging" and not _LOGGING.search(text):
        return "data_preparation"
    if (
        _SYNC.search(text) and not data_preparation.runs_tensors(frames)
    ) or data_preparation.reads_tensor(frames):
        return "host_sync"
    if _LOGGING.search(text):
        return "logging"
    is_data = preparation is not None or (
        _DATA.search(text) and not data_preparation.runs_tensors(frames)
    )
    return cause or ("data_preparation" if is_data else "sleeping" if sleeps else "python")


def _classify_waiting(frames: Sequence[Frame], wait: Wait) -> HostCause:
    """Classify a wait: threads and processes fill queues with batches; services and programs are
    asked for those only by a function that is named after them."""
    purpose = _classify_by_names(frames)
    if purpose == "logging":
        return purpose
    fills = wait.kind in {"thread", "process"}
    return "input_wait" if fills or purpose == "data_preparation" else "wait"


def _classify_by_names(frames: Sequence[Frame]) -> HostCause | None:
    """Classify user functions by their names.

    The outermost name shows the purpose of everything inside: reporting to a server includes
    reading its answer.
    """
    for frame in frames:
        if not frame.library and not data_preparation.is_named_after_event(frame):
            if any(_LOGGING_NAMES.search(n.lower()) for n in (frame.bare_function, frame.owner)):
                return "logging"
            if _DATA.search(frame.bare_function) or _DATA_NAMES.search(frame.bare_function):
                return "data_preparation"
    return None
