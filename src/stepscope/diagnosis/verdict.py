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

CAUSES: dict[Suspect, tuple[str, ...]] = {
    "data_pipeline": (
        "slow_reads",
        "slow_decode",
        "slow_augmentation",
        "slow_tokenisation",
        "slow_collate",
        "slow_dataset",
        "too_few_workers",
        "worker_startup",
        "batch_handover",
        "inline_data_preparation",
        "host_to_device_copies",
        "straggler",
        "uneven_ranks",
    ),
    "framework_overhead": (
        "small_batch",
        "tiny_operators",
        "dispatch_overhead",
        "host_sync",
        "logging",
        "garbage_collection",
        "python_overhead",
        "checkpoint",
        "recompilation",
        "evaluation",
        "memory_leak",
        "cpu_contention",
        "cpu_limit",
        "straggler",
        "uneven_ranks",
    ),
    "model": ("compute", "optimizer", "straggler", "uneven_ranks"),
    "communication": (
        "gradient_exchange",
        "gradient_accumulation",
        "collectives",
        "straggler",
        "uneven_ranks",
    ),
}
"""Every cause within a suspect. Names are part of the command line's JSON and do not change."""

STEP_SHARE = "wall time of the measured training steps"
"""The denominator of every share of the step: steps past warm-up and not under a profiler,
evaluation left out, summed over ranks."""


LOOP_SHARE = "the time that measured training steps and evaluation take together"
"""The denominator where evaluation is accused: it is in no step."""

LEAST_SAVING = 0.005
"""Savings below this share of the step are none."""


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


class OtherCause(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth a fix beside the cause of the verdict."""

    suspect: Suspect
    cause: str
    share_ratio: float
    """Share of the step; of steps and evaluation together where the cause is evaluation."""
    text: str


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """Why another suspect is not it."""

    suspect: Suspect
    share_ratio: float
    why: str


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What one change alone would make of the mean step, all else as it was measured."""

    step_ns: float
    measured_ns: float
    """What that is to be set against: the mean step as it was measured; with its part of the
    evaluation, where that is what the change is about."""
    saving_ratio: float
    """Share of the measured time that it saves, 0 to 1."""
    condition: str
    """What it takes for granted, to be read after "if". Where that is a part which takes no time
    any more, the prediction is the best that can come of the change."""
    text: str

    @property
    def saved_ns(self) -> float:
        """Of every step."""
        return self.measured_ns - self.step_ns

    @classmethod
    def of(cls, step_ns: float, measured_ns: float, condition: str) -> Prediction:
        """A prediction beside the mean step that was measured; a change never makes it longer."""
        step_ns = min(step_ns, measured_ns)
        saving = 1 - step_ns / measured_ns
        what = f"a step of {_time(step_ns)} instead of {_time(measured_ns)}, {saving:.0%} less"
        if saving < LEAST_SAVING:
            what = "by itself no shorter step, even"
        text = f"{what} if {condition}"
        return cls(
            step_ns=step_ns,
            measured_ns=measured_ns,
            saving_ratio=saving,
            condition=condition,
            text=text,
        )


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do."""

    title: str
    how: str
    why: str
    """The evidence for it."""
    prediction: Prediction | None = None
    """None where the record does not carry one."""


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
    also: list[OtherCause] = []
    """Other causes that take a twentieth of the step or more, the largest first."""
    notes: list[str] = []
    step_count: int = 0
    """Measured steps, of all ranks together."""
    mean_step_ns: float | None = None
    phases: dict[str, float] = {}
    """Share of the step by phase."""

    @property
    def owned_step_ratio(self) -> float:
        """What the suspect owns, relative to the mean step. Evaluation is in no step: a share s of
        both together is s / (1 - s) of the steps."""
        if self.share_of == LOOP_SHARE and self.share_ratio < 1:
            return self.share_ratio / (1 - self.share_ratio)
        return self.share_ratio


def _time(ns: float) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"
