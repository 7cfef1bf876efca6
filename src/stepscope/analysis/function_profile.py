"""Where Python spent its time, function by function, from stack samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.code_stages import Frame, parse_stack
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import PHASE_OF_KIND, PHASES, Steps, in_no_phase, steps_of
from stepscope.intervals import Int, innermost_at, nesting_order, parents


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTime:
    """One function. Its own time is spent in its own lines; its total time in what it calls, too:
    a sample counts once for a function, however often it stands in the stack."""

    function: str
    file: str
    library: str
    """Empty for the user's own code, `python` for the standard library."""
    own_weight: int
    total_weight: int
    own_count: int
    """Samples."""
    total_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionProfile:
    """Functions, those with the most time of their own first."""

    sample_count: int
    weight: int
    """Of all samples: nanoseconds where the sampler's period is known, else their number."""
    functions: list[FunctionTime]


def profile_functions(samples: StackSamples, chosen: NDArray[np.bool_]) -> FunctionProfile:
    """The profile of the chosen samples, a mask over them."""
    codes, weights = samples.stack[chosen], samples.weight_ns[chosen]
    size = len(samples.stacks)
    weight = np.zeros(size, dtype=np.int64)
    np.add.at(weight, codes, weights)
    count = np.bincount(codes, minlength=size)
    sums: dict[Frame, list[int]] = {}
    for code in np.flatnonzero(count).tolist():
        frames = [frame for frame in parse_stack(samples.stacks[code]) if frame.function]
        for frame in dict.fromkeys(frames):
            found = sums.setdefault(frame, [0, 0, 0, 0])
            found[1] += int(weight[code])
            found[3] += int(count[code])
        if frames:
            sums[frames[-1]][0] += int(weight[code])
            sums[frames[-1]][2] += int(count[code])
    functions = [
        FunctionTime(
            function=frame.function,
            file=frame.file,
            library=frame.library,
            own_weight=own,
            total_weight=total,
            own_count=own_count,
            total_count=total_count,
        )
        for frame, (own, total, own_count, total_count) in sums.items()
    ]
    return FunctionProfile(
        sample_count=len(codes),
        weight=int(weights.sum()),
        functions=sorted(functions, key=lambda f: (-f.own_weight, -f.total_weight, f.function)),
    )


def phases_at(times: Int, spans: Spans, steps: Steps) -> NDArray[np.int64]:
    """The phase, as its place in `PHASES`, that the training thread was in at each time; -1 outside
    steps and in evaluation. It is the host's phase, also where devices were timed."""
    own = spans.take((spans.thread == steps.thread) & spans.is_kind(*PHASE_OF_KIND))
    own = own.take(own.end > own.start)
    own = own.take(nesting_order(own.start, own.end))
    around = innermost_at(times, own.start, own.end, parents(own.start, own.end))
    phase_of_kind = np.array([_phase(kind, PHASE_OF_KIND) for kind in own.kinds] or [-1])
    kinds = own.kind[around] if len(own) else np.zeros(len(times), dtype=np.int64)
    found = np.where(around >= 0, phase_of_kind[kinds], PHASES.index("loss"))
    # What is in a step but in no phase is the loss where a backward pass follows, else `other`.
    found = np.where(in_no_phase(times, spans, steps), PHASES.index("other"), found)
    return np.where(steps_of(times, steps) >= 0, found, -1).astype(np.int64)


def _phase(kind: str, phases: Mapping[str, str]) -> int:
    return PHASES.index(phases[kind]) if kind in phases else -1
