"""What the training thread does between its phases, from its stack samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.code_stages import Frame, parse_stack
from stepscope.analysis.input_pipeline import StackSamples
from stepscope.analysis.intervals import Int, innermost_at, nesting_order, parents
from stepscope.analysis.spans import Spans
from stepscope.analysis.steps import PHASE_OF_KIND, Steps, steps_of

HostCause = Literal["host_sync", "logging", "garbage_collection", "data_preparation", "python"]

_SYNC = re.compile(
    r"\.(item|tolist|cpu|numpy)\(|synchronize\(|\bfloat\(|\bint\(|\bbool\(|isnan\(|isfinite\("
)
_LOGGING = re.compile(
    r"\bprint\(|\blog(ger|ging)?\b|\bwandb\b|\.add_scalar|\bwriter\.|tqdm|flush\("
)
_DATA = re.compile(
    r"get_batch|from_numpy|next\(|load|read|decode|augment|transform|collate|sample_batch|memmap"
    r"|generate_batch|make_batch"
)


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


def find_host_work(
    spans: Spans,
    samples: StackSamples,
    steps: Steps,
    sources: Mapping[tuple[str, int], str],
) -> HostWork | None:
    """Attribute the time outside all phases, None without samples there.

    Args:
        samples: of the training thread.
        sources: text of source lines by (file, line), as far as they were recorded.
    """
    between = _between_phases(spans, samples.t_ns, steps)
    if not between.any():
        return None
    pairs = np.stack([samples.stack[between], samples.user_line[between]], axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    spent = np.zeros(len(unique), dtype=np.int64)
    np.add.at(spent, inverse.ravel(), samples.weight_ns[between])
    total = max(1, int(spent.sum()))
    causes: dict[HostCause, float] = {}
    lines: dict[tuple[str, int], int] = {}
    for (stack, line), number in zip(unique.tolist(), spent.tolist(), strict=True):
        frames = parse_stack(samples.stacks[stack])
        place = _user_place(frames, line)
        text = sources.get(place, "") if place else ""
        cause = _cause(frames, text)
        causes[cause] = causes.get(cause, 0.0) + number / total
        if place:
            lines[place] = lines.get(place, 0) + number
    top = sorted(lines.items(), key=lambda item: -item[1])[:5]
    return HostWork(
        sample_count=int(between.sum()),
        causes=dict(sorted(causes.items(), key=lambda item: -item[1])),
        lines=[
            HostLine(file=f, line=n, text=sources.get((f, n), ""), ratio=time_ns / total)
            for (f, n), time_ns in top
        ],
    )


def _between_phases(spans: Spans, times: Int, steps: Steps) -> NDArray[np.bool_]:
    own = spans.take(spans.is_kind(*PHASE_OF_KIND) & (spans.thread == steps.thread))
    own = own.take(nesting_order(own.start, own.end))
    if not len(own):
        return steps_of(times, steps) >= 0
    inside = innermost_at(times, own.start, own.end, parents(own.start, own.end))
    return (inside < 0) & (steps_of(times, steps) >= 0)


def _user_place(frames: Sequence[Frame], line: int) -> tuple[str, int] | None:
    for frame in reversed(frames):
        if frame.library == "":
            return frame.file, line
    return None


def _cause(frames: Sequence[Frame], text: str) -> HostCause:
    """The innermost evidence counts: a logging call inside a synchronising line is logging."""
    for frame in reversed(frames):
        if frame.library in {"wandb", "tensorboard", "mlflow", "tqdm", "rich"} or (
            frame.library == "python"
            and frame.module in {"logging", "__init__"}
            and "/logging/" in frame.file
        ):
            return "logging"
        if frame.library == "":
            break
    innermost = frames[-1] if frames else None
    if innermost is not None and innermost.library == "python" and innermost.module == "gc":
        return "garbage_collection"
    if _SYNC.search(text):
        return "host_sync"
    if _LOGGING.search(text):
        return "logging"
    if _DATA.search(text) or any(_DATA.search(f.bare_function) for f in frames if not f.library):
        return "data_preparation"
    return "python"
