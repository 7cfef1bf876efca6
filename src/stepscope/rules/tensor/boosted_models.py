"""Base of the rules that judge each recorded round of each model of XGBoost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from stepscope.quantities import count, count_of
from stepscope.rules.base import IncrementalRule, NotRecorded
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.tensor.base import describe_first
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding

MAX_LISTED = 200
"""Models in the details."""
_MODEL = re.compile(r"(model \d+)/")


class ModelViolations(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded rounds of one model that violate the condition."""

    model: str = ""
    rank: int | None = None
    record_count: int = 0
    """Recorded rounds."""
    violation_count: int = 0
    """Of these, those that violate the condition."""
    first_round: int | None = None
    """First of these: the number of rounds before it."""
    first_value: float | None = None
    """Value that the rule judged there."""
    last_round: int | None = None
    last_value: float | None = None


class ModelRuleDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Results by model."""

    model_count: int = 0
    """Models that the rule judged."""
    models: list[ModelViolations] = []
    """Those with violations, by rank and number; at most 200."""


class JudgedRound(NamedTuple):
    """Value of one recorded round."""

    round: int
    t_ns: int
    value: float
    is_violation: bool
    text: str = ""
    """Explanation of the value."""


@dataclass(slots=True, kw_only=True)
class ModelState:
    """State of one model."""

    title: str
    rank: int | None
    record_count: int = 0
    violation_count: int = 0
    extent: list[JudgedRound] = field(default_factory=list)
    """First and last violation, if there are any."""
    trigger: Trigger = field(default_factory=Trigger)

    @property
    def number(self) -> int:
        """Number of the model in its process."""
        return int(self.title.removeprefix("model "))

    def add(self, judged: JudgedRound, inputs: RuleInputs) -> None:
        """Add the next recorded round."""
        self.record_count += 1
        if judged.is_violation:
            self.violation_count += 1
            self.extent = [(self.extent or [judged])[0], judged]
            self.trigger.add_times(inputs, [judged.t_ns])
            self.trigger.cover(judged.t_ns, judged.t_ns)


@dataclass(slots=True)
class ModelStates:
    """State of all models, by process and title."""

    models: dict[tuple[str, str], ModelState] = field(default_factory=dict)
    has_left_out: bool = False
    """A model is of no kind that the rule judges."""
    has_small: bool = False
    """A model was too small to be judged."""

    def find(self, process: str, name: str, rank: int | None) -> ModelState:
        """Return the state of the model that a name of a metric or tensor begins with."""
        title = title_of(name)
        if (process, title) not in self.models:
            self.models[process, title] = ModelState(title=title, rank=rank)
        return self.models[process, title]


P = TypeVar("P")


class BoostedModelRule(IncrementalRule[P, ModelStates], Generic[P]):
    """Judges each recorded round of each model."""

    topic = "tensors"
    evidence = ("xgboost",)
    missing: ClassVar[str]
    advice: ClassVar[str]
    missing_in_traces = "imported traces have no models of XGBoost"
    run_state = ModelStates

    def describe(self, model: ModelState) -> str:
        """Describe the first violation of a model, without a full stop."""
        raise NotImplementedError

    def decide(self, state: ModelStates) -> Finding | None:
        models = sorted(state.models.values(), key=lambda model: (model.rank or 0, model.number))
        if not models:
            raise NotRecorded(self.missing, advice=self.advice)
        fired = [model for model in models if model.extent]
        trigger = Trigger()
        for model in fired:
            trigger.ends_ns.update(model.trigger.ends_ns)
            trigger.include(model.trigger)
        return self.finding(
            triggered=trigger,
            violations=sum(model.violation_count for model in models),
            datapoints=sum(model.record_count for model in models),
            details=ModelRuleDetails(
                model_count=len(models), models=[_violations_of(m) for m in fired[:MAX_LISTED]]
            ),
            sentences=describe_first(fired, self._describe_model),
            ranks={f"rank {model.rank or 0}" for model in fired},
        )

    def _describe_model(self, model: ModelState) -> str:
        on_rank = f", rank {model.rank}" if model.rank else ""
        share = (
            f"{count(model.violation_count)} of {count_of(model.record_count, 'recorded round')}"
        )
        return f"{model.title}{on_rank}: {self.describe(model)}; in {share}."


def title_of(name: str) -> str:
    """Return the title of the model that a name belongs to.

    >>> title_of("trees/depth"), title_of("model 2/trees/depth")
    ('model 1', 'model 2')
    """
    match = _MODEL.match(name)
    return match[1] if match else "model 1"


def _violations_of(model: ModelState) -> ModelViolations:
    first, last = model.extent
    return ModelViolations(
        model=model.title,
        rank=model.rank,
        record_count=model.record_count,
        violation_count=model.violation_count,
        first_round=first.round,
        first_value=first.value,
        last_round=last.round,
        last_value=last.value,
    )
