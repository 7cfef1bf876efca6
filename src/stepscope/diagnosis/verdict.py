"""Verdict: the result of a diagnosis, the verdict on learning, and HTML for notebooks.

Parts of an HTML fragment for notebooks. Its colors are those of the text around it, so it is
readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Annotated, Literal

import msgspec

from stepscope import quantities, schema
from stepscope.diagnosis.death_causes import Death
from stepscope.diagnosis.host_memory import MemoryAccount
from stepscope.diagnosis.job_account import JobAccount
from stepscope.diagnosis.job_stage import JobStage
from stepscope.diagnosis.stuck_account import StuckAccount

LEARNING_TITLE = "Is the model learning?"
LearningState = Literal["healthy", "issue", "not_judged"]


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to "is the model learning?", from the rules about tensors and losses."""

    state: LearningState
    """`healthy`: the loss decreases and no rule fired; `issue`: a rule fired; `not_judged`: too
    little was recorded."""
    headline: str
    rule: str | None = None
    """The rule that fired first, by the time of its data."""
    first_ns: int | None = None
    """Time of the first data that violated its condition, epoch nanoseconds."""
    evidence: list[str] = []
    advice: str = ""
    also: list[str] = []
    """Rules that fired after it, in order."""
    not_recorded: list[str] = []
    """Reasons why parts could not be judged."""

    @property
    def lines(self) -> list[str]:
        """The answer, its evidence and what to do, as sentences."""
        return [
            self.headline,
            *self.evidence,
            *([f"What to do: {self.advice}"] if self.advice else []),
            *([f"Fired later: {', '.join(self.also)}."] if self.also else []),
            *self.not_recorded,
        ]


Suspect = Literal[
    "data_pipeline",
    "model",
    "communication",
    "framework_overhead",
    "healthy",
    "insufficient_evidence",
]

SUSPECTS: tuple[Suspect, ...] = ("data_pipeline", "model", "communication", "framework_overhead")
"""Suspects that own a share of the step."""

SUSPECT_NAMES: dict[Suspect, str] = {
    "data_pipeline": "data pipeline",
    "model": "model",
    "communication": "communication",
    "framework_overhead": "framework and host overhead",
    "healthy": "none",
    "insufficient_evidence": "insufficient evidence",
}

UNKNOWN = "unknown"
"""The suspect is known and the cause within it is not."""

CAUSES: dict[Suspect, tuple[str, ...]] = {
    "data_pipeline": (
        "slow_reads",
        "slow_decode",
        "slow_augmentation",
        "slow_tokenisation",
        "slow_collate",
        "slow_dataset",
        "too_few_workers",
        "too_many_workers",
        "worker_startup",
        "batch_handover",
        "inline_data_preparation",
        "slow_input_pipeline",
        "waiting_for_a_thread",
        "waiting_for_a_process",
        "waiting_for_a_service",
        "waiting_for_a_program",
        "waiting_for_a_coroutine",
        "waiting_for_a_lock",
        "host_to_device_copies",
        "straggler",
        "uneven_ranks",
        UNKNOWN,
    ),
    "framework_overhead": (
        "small_batch",
        "tiny_operators",
        "dispatch_overhead",
        "host_sync",
        "logging",
        "garbage_collection",
        *("debug_switch", "job_profiler", "model_callbacks", "python_overhead", "sleeping"),
        *("waiting_for_a_service", "waiting_for_a_program", "waiting_for_a_coroutine"),
        *("waiting_for_a_lock", "checkpoint"),
        "recompilation",
        "memory_allocation",
        "long_calls",
        "device_to_host_copies",
        "evaluation",
        "memory_leak",
        "cpu_contention",
        "cpu_limit",
        "straggler",
        "uneven_ranks",
        UNKNOWN,
    ),
    "model": (
        "compute",
        "optimizer",
        "padding",
        "full_precision",
        "low_occupancy",
        "straggler",
        "uneven_ranks",
        "slow_worker",
        "last_stage",
        "slow_stage",
        "uneven_inputs",
    ),
    "communication": (
        "gradient_exchange",
        "gradient_accumulation",
        "collectives",
        "debug_switch",
        "straggler",
        "uneven_ranks",
    ),
}
"""Causes of each suspect. The names are part of the JSON output and do not change."""

TargetName = Literal["gpu_utilization", "data_loading", "rules"]
EvidenceKind = Literal["timed", "sampled", "profiled", "configured", "traced"]
_PROPER_WORDS = {"cpu": "CPU", "python": "Python", UNKNOWN: "cause not found"}

STEP_SHARE = "step wall time"
"""Denominator of every share of the step: wall time of the measured steps (past warm-up, not under
a profiler, evaluation left out), summed over ranks."""
CORE_SHARE = "step wall time without waiting for cores"
"""Denominator where much of the step was time without a core that the job does not cause."""
CORE_TIME = "step time without waiting for cores"
"""That time of one step."""
"""Condition of a prediction that holds for the first steps as well, as far as they recompile."""
LOOP_SHARE = "step and evaluation wall time"
"""Denominator where evaluation is the bottleneck, because evaluation is in no step."""
MIN_LISTED_RATIO = 0.005
"""Smaller parts of the step are not listed."""
MIN_SAVING_RATIO = 0.005
"""Smaller savings, as a share of the step, count as none."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that supports the verdict."""

    text: str
    value: float | None = None
    unit: str = ""
    source: str = ""
    """The view that shows it: `stepscope show RUN <source>`."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the suspect's share."""

    name: str
    detail: str
    share_ratio: float
    """Share of the step."""


class SuspectShare(msgspec.Struct, frozen=True, kw_only=True):
    """A suspect's share of the step."""

    suspect: Suspect
    share_ratio: float
    share_of: str = STEP_SHARE
    """Denominator of the share."""


class ContributingCause(msgspec.Struct, frozen=True, kw_only=True):
    """Another cause that is worth a fix."""

    suspect: Suspect
    cause: str
    share_ratio: float
    share_of: str = STEP_SHARE
    """Denominator of the share."""
    text: str


class PhaseBar(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the step, as it is drawn."""

    phase: str
    share_ratio: float
    """Share of the verdict's `share_of`; of step wall time where that is the time of evaluation as
    well."""
    with_core_ratio: float
    """Length of the filled part of the bar, as a share of step wall time."""
    without_core_ratio: float = 0.0
    """Length of the hatched part: time without a core that the job does not cause, as a share of
    step wall time."""


class RuledOut(SuspectShare, frozen=True, kw_only=True):
    """A suspect that takes too little of the step to be a bottleneck, with the reason."""

    why: str


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted mean step after one change, everything else as measured."""

    step_ns: float
    measured_ns: float
    """Baseline of the prediction: the mean time of `share_of` per step."""
    share_of: str = STEP_SHARE
    """Denominator of the saving: the mean step as measured, with its part of the evaluation where
    the change concerns evaluation, without waiting for cores where shares are of that."""
    saving_ratio: float
    """Saving as a share of the measured time, 0 to 1."""
    condition: str
    """Assumption of the prediction, worded to follow "if"."""
    cause: str = ""
    """Cause of the verdict that the change removes; empty where it is none."""
    is_bound: bool = False
    """True where the assumption is that a part takes no time: a change saves at most this."""
    text: str

    @property
    def saved_ns(self) -> float:
        """Saving per step."""
        return self.measured_ns - self.step_ns

    @classmethod
    def from_step(
        cls,
        step_ns: float,
        measured_ns: float,
        condition: str,
        *,
        is_bound: bool = False,
        share_of: str = STEP_SHARE,
    ) -> Prediction:
        """Create a prediction from the step before and after; a change never makes it longer."""
        name = CORE_TIME if share_of == CORE_SHARE else "step time"
        step_ns = min(step_ns, measured_ns)
        saving_ratio = 1 - step_ns / measured_ns
        if saving_ratio < MIN_SAVING_RATIO:
            text = f"{name} unchanged by this fix alone, even if {condition}"
        elif is_bound:
            text = (
                f"saving of at most {quantities.percent(saving_ratio)} ({name} at least "
                f"{quantities.duration(step_ns)}) if {condition}"
            )
        else:
            change = quantities.relative_change(-saving_ratio, 0)
            text = f"{name} {quantities.duration(step_ns)} ({change}) if {condition}"
        return cls(
            step_ns=step_ns,
            measured_ns=measured_ns,
            share_of=share_of,
            saving_ratio=saving_ratio,
            condition=condition,
            is_bound=is_bound,
            text=text,
        )


class TriedFix(msgspec.Struct, frozen=True, kw_only=True):
    """Measured effect of a fix: the last outcome of `stepscope try`."""

    saving_ratio: float
    """Median saving as a share of the step; negative for a longer step."""
    min_saving_ratio: float
    """Lower end of its interval."""
    max_saving_ratio: float
    """Upper end of its interval."""
    confidence_ratio: float
    """Probability that such an interval contains the median."""
    pair_count: int
    """Pairs of trials without and with the change."""
    text: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A recommended change."""

    title: str
    instructions: str = msgspec.field(name="how")
    why: str
    """Evidence for the fix, a full sentence."""
    prediction: Prediction | None = None
    """None where the run does not contain the data for one."""
    changes: list[schema.Change] = []
    """Changes that `stepscope try` can make in the job to measure the fix; empty where it cannot
    be made without editing the script."""
    tried: TriedFix | None = None
    """Measured effect, null where the fix was not tried."""
    job_saving_ratio: float | None = None
    """Predicted saving as a share of the whole job; null without a prediction, or a job."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Expected result of a run in which the fix of the main cause has worked."""

    name: TargetName
    text: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The bottleneck of a job, its cause, the evidence and the fixes."""

    suspect: Suspect
    cause: str
    share_ratio: float
    """The suspect's share of `share_of`."""
    share_of: str = STEP_SHARE
    confidence_ratio: float
    """Expected share of verdicts like this that are right: the stability of the verdict under
    resampling of steps, lowered where evidence is missing, times the accuracy of such verdicts on
    public programs."""
    evidence_kind: EvidenceKind = "timed"
    """Evidence that decided on the cause."""
    headline: str
    share_basis: str = ""
    """Parts of `share_ratio` in one sentence; empty where it is the share of one phase."""
    stages: list[Stage]
    evidence: list[Evidence]
    ruled_out: list[RuledOut]
    """Suspects that take too little of the step: neither the largest part of it nor a suspect with
    a cause in `also` is one of them."""
    suspects: list[SuspectShare] = []
    """Shares of all suspects; empty where they are not known."""
    fixes: list[Fix]
    targets: list[Target] = []
    """What to expect after the fix; empty unless a GPU waits for the data pipeline."""
    also: list[ContributingCause] = []
    """Contributing causes with at least a twentieth of the step, largest first."""
    refused: dict[str, str] = {}
    """Reasons for which the verdict refuses the advice of a rule, by rule."""
    notes: list[str] = []
    limitations: list[str] = []
    """Notes on data that were not recorded to the end of the job, or are rounded."""
    doubts: list[str] = []
    """Doubts about the traces that change the verdict, the worst first."""
    death: Death | None = None
    """What ended the job, if it did not succeed; null otherwise."""
    stuck: StuckAccount | None = None
    """Collective or line at which the job is stuck or has failed; null if it is not."""
    memory: MemoryAccount | None = None
    """Host memory of the job: growth, and when its limit is full; null without samples."""
    job: JobAccount | None = None
    """What the time of the whole job went to; null for traces alone."""
    learning: Learning | None = None
    """Second verdict: is the model learning? Null without recorded tensors and losses."""
    step_count: int = 0
    """Measured steps of all ranks."""
    mean_step_ns: float | None = None
    bases_ns: Annotated[dict[str, float], schema.field_label("denominators", unit="ns")] = {}
    """Mean time per step by denominator, for those that are not the mean step. A share and a time
    may be multiplied only where the share is of that time."""
    phases: Annotated[dict[str, float], schema.field_label("mean time by phase", unit="ns")] = {}
    """Share of step wall time by phase, as measured."""
    bars: list[PhaseBar] = []
    """The phases as they are drawn."""
    bars_basis: str = ""
    """Meaning of the hatched parts of the bars, a sentence; empty without any."""
    job_stages: list[JobStage] = []
    """Stages of a job that trains several times in one process, the one with the largest share of
    time first, whose verdict this is; empty for a single training."""

    @property
    def has_bottleneck(self) -> bool:
        """Return True if a suspect is the bottleneck."""
        return self.suspect in SUSPECTS

    def _repr_html_(self) -> str:
        parts = [f"<strong>{escape(self.headline)}</strong>"]
        if self.stuck is not None:
            parts.insert(0, f"<strong>{escape(self.stuck.headline)}</strong>")
            parts.insert(1, render_list("Ranks and processes", map(escape, self.stuck.lines)))
        if self.death is not None:
            parts.insert(0, f"<strong>{escape(self.death.headline)}</strong>")
            parts.insert(1, render_list("What ended the job", map(escape, self.death.lines)))
        if self.memory is not None and self.memory.is_growing:
            text = " ".join([self.memory.headline, *self.memory.lines])
            parts.insert(len(parts) - 1, f"<strong>{escape(text)}</strong>")
        if self.has_bottleneck:
            share = f"{quantities.percent(self.share_ratio)} of {self.share_of}"
            confidence = f"Confidence {quantities.percent(self.confidence_ratio)}."
            parts.append(render_dim(escape(f"{share}. {confidence}")))
        fixes = []
        for fix in self.fixes:
            prediction = f" Predicted {escape(fix.prediction.text)}." if fix.prediction else ""
            fixes.append(f"<b>{escape(fix.title)}</b>: {escape(fix.instructions)}{prediction}")
        parts.append(render_list("Evidence", [escape(item.text) for item in self.evidence]))
        parts.append(render_list("What to do", fixes, tag="ol"))
        parts.append(render_list("Notes", map(escape, self.notes)))
        if self.doubts:
            parts.insert(0, render_list("Doubts", map(escape, self.doubts)))
        return render_box(parts)

    def get_share(self, suspect: Suspect) -> float | None:
        """Return the share of a suspect, bottleneck or not; None where it is not known."""
        return next((s.share_ratio for s in self.suspects if s.suspect == suspect), None)

    def measure_share(self, share_ratio: float, share_of: str) -> float | None:
        """Measure the time per step of a share; None without steps."""
        base_ns = self.bases_ns.get(share_of, self.mean_step_ns)
        return None if base_ns is None else share_ratio * base_ns

    @property
    def suspect_step_ns(self) -> float | None:
        """Time per step that the bottleneck owns; None without one. Evaluation is in no step, so
        that of evaluation may be longer than the mean step."""
        if not self.has_bottleneck:
            return None
        return self.measure_share(self.share_ratio, self.share_of)


def name_cause(cause: str) -> str:
    """Turn the identifier of a cause into words.

    >>> name_cause("cpu_contention"), name_cause("slow_decode"), name_cause("unknown")
    ('CPU contention', 'slow decode', 'cause not found')
    """
    return " ".join(_PROPER_WORDS.get(word, word) for word in cause.split("_"))


def make_abstention(
    obstacle: str,
    notes: Sequence[str],
    *,
    evidence_kind: EvidenceKind = "timed",
    step_count: int = 0,
) -> Verdict:
    """Make the verdict that there is none, because of an obstacle."""
    return Verdict(
        suspect="insufficient_evidence",
        cause="insufficient_evidence",
        share_ratio=0.0,
        confidence_ratio=0.0,
        headline=f"No verdict: {obstacle}.",
        evidence_kind=evidence_kind,
        stages=[],
        evidence=[],
        ruled_out=[],
        fixes=[],
        notes=list(notes),
        step_count=step_count,
    )


def describe_step_time(shares: Mapping[str, float], kind: str) -> Evidence:
    """List the shares of the step by phase or by category; very small ones are left out."""
    parts = [
        f"{name.replace('_', ' ')} {quantities.percent(share)}"
        for name, share in shares.items()
        if share >= MIN_LISTED_RATIO
    ]
    return Evidence(text=f"Step time by {kind}: {', '.join(parts)}.", source="steps")


_BOX_STYLE = "border-left:3px solid currentColor;padding:.2em 1em;max-width:60em"


def render_box(parts: Iterable[str]) -> str:
    """Render a box around HTML parts."""
    return f'<div style="{_BOX_STYLE}">{"".join(parts)}</div>'


def render_dim(text: str) -> str:
    """Render a line of HTML of less weight."""
    return f'<div style="opacity:.7">{text}</div>'


def render_list(title: str, items: Iterable[str], *, tag: str = "ul") -> str:
    """Render a titled list of HTML items; empty without items."""
    entries = "".join(f"<li>{item}</li>" for item in items)
    return f"<div>{title}</div><{tag}>{entries}</{tag}>" if entries else ""
