"""Python time by function, from stack samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.code_stages import Frame, parse_stack
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.analysis.phases import PHASE_OF_KIND, PHASES
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import Steps, find_step_at, is_outside_phases
from stepscope.intervals import Int, Intervals, contains, innermost_at, nesting_order, parents


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTime:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProfile:
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
    during: Intervals | None = None,
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
        selected &= contains(during, samples.t_ns)
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
    sums: dict[Frame, list[int]] = {}
    for code in np.flatnonzero(count).tolist():
        frames = [frame for frame in parse_stack(samples.stacks[code]) if frame.function]
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


@dataclass(slots=True, kw_only=True)
class StackNode:
    """Function in its place in the stacks, with the functions that it called."""

    function: str
    file: str
    weight: int = 0
    """Of the samples with this path, as of `FunctionProfile`."""
    sample_count: int = 0
    callees: dict[Frame, StackNode] = field(default_factory=dict)


def build_stack_tree(samples: StackSamples, mask: NDArray[np.bool_]) -> StackNode:
    """Sum the samples that a mask selects by path of calls; the root stands for all of them."""
    root = StackNode(function="", file="")
    codes, weights = samples.stack[mask], samples.weight_ns[mask]
    weight = np.zeros(len(samples.stacks), dtype=np.int64)
    np.add.at(weight, codes, weights)
    counts = np.bincount(codes, minlength=len(samples.stacks))
    for code in np.flatnonzero(counts).tolist():
        node = root
        frames = [frame for frame in parse_stack(samples.stacks[code]) if frame.function]
        for frame in (None, *frames):
            if frame is not None:
                node = node.callees.setdefault(
                    frame, StackNode(function=frame.function, file=frame.file)
                )
            node.weight += int(weight[code])
            node.sample_count += int(counts[code])
    return root


def find_phase_at(times: Int, spans: Spans, steps: Steps) -> NDArray[np.int64]:
    """Find the phase of the training thread at each time, as index into `PHASES`.

    It is -1 outside steps and in evaluation. It is the phase of the host, even for phases that
    were timed on a device.
    """
    phase_spans = spans.take((spans.thread == steps.thread) & spans.is_kind(*PHASE_OF_KIND))
    phase_spans = phase_spans.take(phase_spans.end > phase_spans.start)
    phase_spans = phase_spans.take(nesting_order(phase_spans.start, phase_spans.end))
    start, end = phase_spans.start, phase_spans.end
    span = innermost_at(times, start, end, parents(start, end))
    phase_of_kind = np.array([_find_phase(kind, PHASE_OF_KIND) for kind in spans.kinds] or [-1])
    kinds = phase_spans.kind[span] if len(phase_spans) else np.zeros(len(times), dtype=np.int64)
    phases = np.where(span >= 0, phase_of_kind[kinds], PHASES.index("loss"))
    # Time of a step outside its phases is `loss` if a backward pass follows, otherwise `other`.
    phases = np.where(is_outside_phases(times, spans, steps), PHASES.index("other"), phases)
    return np.where(find_step_at(times, steps) >= 0, phases, -1).astype(np.int64)


def _find_phase(kind: str, phases: Mapping[str, str]) -> int:
    return PHASES.index(phases[kind]) if kind in phases else -1
