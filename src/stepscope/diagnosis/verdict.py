"""What a diagnosis says."""

from __future__ import annotations

from typing import Literal

import msgspec

Suspect = Literal[
    "data_pipeline",
    "model",
    "communication",
    "framework_overhead",
    "healthy",
    "insufficient_evidence",
]

SUSPECTS: tuple[Suspect, ...] = ("data_pipeline", "model", "communication", "framework_overhead")
"""Those that can be accused."""

SUSPECT_NAMES: dict[Suspect, str] = {
    "data_pipeline": "the data pipeline",
    "model": "the model",
    "communication": "communication between ranks",
    "framework_overhead": "framework and host overhead",
    "healthy": "nothing in particular",
    "insufficient_evidence": "not enough evidence",
}

STEP_SHARE = "wall time of the measured training steps"
"""The denominator of every share of the step: steps past warm-up and not under a profiler,
evaluation left out, summed over ranks."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that the verdict rests on."""

    text: str
    value: float | None = None
    unit: str = ""
    source: str = ""
    """The view that shows it: `stepscope show RUN <source>`."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what the suspect owns."""

    name: str
    detail: str
    share_ratio: float
    """Share of the step."""


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """Why another suspect is not it."""

    suspect: Suspect
    share_ratio: float
    why: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do."""

    title: str
    how: str
    why: str
    """The evidence for it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the job waits for."""

    suspect: Suspect
    cause: str
    share_ratio: float
    """Share of the step that the suspect owns."""
    share_of: str = STEP_SHARE
    confidence_ratio: float
    """How often the same verdict comes out when steps are resampled, lowered where evidence is
    missing."""
    headline: str
    stages: list[Stage]
    evidence: list[Evidence]
    ruled_out: list[RuledOut]
    fixes: list[Fix]
    notes: list[str] = []
    step_count: int = 0
    """Measured steps, of all ranks together."""
    mean_step_ns: float | None = None
    phases: dict[str, float] = {}
    """Share of the step by phase."""
