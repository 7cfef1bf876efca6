"""Models of XGBoost that depend on few features, or have deep trees."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.quantities import count, count_of, percent
from stepscope.rules.base import IncrementalRule, NotApplicable, NotRecorded, Trigger
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Boolean, Count, Ratio, Regex
from stepscope.rules.tensor.base import describe_first

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


class ModelState(msgspec.Struct, kw_only=True):
    """State of one model."""

    title: str
    rank: int | None
    record_count: int = 0
    violation_count: int = 0
    extent: list[JudgedRound] = msgspec.field(default_factory=list)
    """First and last violation, if there are any."""
    trigger: Trigger = msgspec.field(default_factory=Trigger)

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


class ModelStates(msgspec.Struct):
    """State of all models, by process and title."""

    models: dict[tuple[str, str], ModelState] = msgspec.field(default_factory=dict)
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

    def decide(self, state: ModelStates) -> schema.Finding | None:
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


OTHER_FEATURES = "(other features)"
"""Row of all features that have none of their own."""
MAX_NAMED = 3
MIN_SPLITS_PER_FEATURE = 10
"""Splits of the model for each of `nfeatures` from which the importance by weight is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureImportanceOverweightParameters:
    """Limit of the importance of a few features."""

    threshold: Ratio = 0.8
    """The rule fires if the most important features have more than this share of the importance of
    all."""
    nfeatures: Count = 3
    """Number of these features."""
    tensor_regex: Regex = ".*feature_importance/weight"
    """Regular expression that is searched for in the names of recorded importance, such as
    feature_importance/total_gain."""


class FeatureImportanceOverweight(BoostedModelRule[FeatureImportanceOverweightParameters]):
    """Checks whether an XGBoost model depends on few features.

    ## What it checks
    For each recorded round of each model, the importance of the `nfeatures` most important features
    as a share of the importance of all. By default the importance of a feature is the number of
    splits that use it (`weight`), in all trees so far; another one is chosen by `tensor_regex`. The
    rule fires if the share is above `threshold`. Not judged are models of data with at most
    `nfeatures` features, and by `weight` rounds in which the model has less than ten splits for
    each of `nfeatures`: the first trees use few features. Datapoints are recorded rounds,
    violations those above the threshold.

    ## Why it matters
    A feature that decides alone often holds the answer: it is computed from the label, or is known
    only after the event. The model is then useless in practice. And if the feature is missing or
    wrong in one row, so is the prediction.

    ## What to do
    Find out how the named features are made, and whether they are known at the time of the
    prediction. Limit the depth of trees, or the features of each with `colsample_bytree`.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger judges every recorded round, also those of the first trees, and data with few features,
    where the share is always 1.
    """

    parameters_type = FeatureImportanceOverweightParameters
    recommendation = "Check that these features are known when the model predicts."
    missing = "no importance of features was recorded"
    advice = "run the job with `--tensors feature_importance`"

    def update(self, state: ModelStates, inputs: RuleInputs) -> ModelStates:
        feature_counts = {
            (process.process, f"model {fact.number}"): fact.column_count
            for process in inputs.processes
            for fact in process.facts_of(schema.BoostedModelFact)
        }
        regex = re.compile(self.parameters.tensor_regex or "")
        for importance in inputs.values_of("feature_importance"):
            if regex.search(importance.name) is None:
                continue
            feature_count = feature_counts.get((importance.process, title_of(importance.name)))
            if feature_count is not None and feature_count <= self.parameters.nfeatures:
                state.has_left_out = True
                continue
            judged = self._judge(importance, feature_count)
            if judged is not None:
                model = state.find(importance.process, importance.name, importance.rank)
                model.add(judged, inputs)
            state.has_small = state.has_small or judged is None
        return state

    def decide(self, state: ModelStates) -> schema.Finding | None:
        if not state.models and state.has_left_out:
            features = count_of(self.parameters.nfeatures, "feature")
            raise NotApplicable(f"the data of the models have at most {features}")
        if not state.models and state.has_small:
            raise NotApplicable("the models have too few splits so far")
        return super().decide(state)

    def _judge(
        self, importance: analysis.TensorValues, feature_count: int | None
    ) -> JudgedRound | None:
        scores = np.nan_to_num(importance.values[:, 0])
        total = float(scores.sum())
        is_weight = importance.name.endswith("/weight")
        if total <= 0 or (is_weight and total < MIN_SPLITS_PER_FEATURE * self.parameters.nfeatures):
            return None
        is_named = np.array([row != OTHER_FEATURES for row in importance.rows])
        largest = np.argsort(-scores[is_named], kind="stable")[: self.parameters.nfeatures]
        names = [row for row in importance.rows if row != OTHER_FEATURES]
        shares = scores[is_named] / total
        share = float(shares[largest].sum())
        largest_names = [
            f"{names[row]} {percent(float(shares[row]))}" for row in largest[:MAX_NAMED]
        ]
        more = f" and {count(len(largest) - MAX_NAMED)} more" if len(largest) > MAX_NAMED else ""
        of_all = f" of {count(feature_count)}" if feature_count is not None else ""
        return JudgedRound(
            importance.step,
            importance.t_ns,
            share,
            share > self.parameters.threshold,
            f"{count(len(largest))}{of_all} features have {percent(share)} of the importance "
            f"({importance.name.rpartition('/')[2]}) after round {importance.step}: "
            f"{', '.join(largest_names)}{more}",
        )

    def describe(self, model: ModelState) -> str:
        return model.extent[0].text


_NAME = re.compile(r"^(?:model \d+/)?trees/(depth|largest_node_id)$")


def estimate_depth(largest_node_id: float) -> int:
    """Estimate the depth of a tree from the largest number of its nodes, as SageMaker Debugger
    does: right for a complete tree, too small for another one.

    >>> [estimate_depth(number) for number in (0, 2, 6, 30, 20)]
    [0, 1, 2, 4, 4]
    """
    return int(math.log2(largest_node_id)) if largest_node_id >= 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDepthParameters:
    """Limit of the depth."""

    depth: Count = 4
    """The rule fires if a tree has more levels of splits than this."""
    by_node_id: Annotated[bool, Boolean()] = False
    """Estimate the depth from the largest number of a node, as Debugger does."""


class TreeDepth(BoostedModelRule[TreeDepthParameters]):
    """Checks whether the trees of an XGBoost model are deep.

    ## What it checks
    For each recorded round of each model, the levels of splits from the root to the deepest leaf
    of the trees of the round. The rule fires if there are more than `depth`. Datapoints are
    recorded rounds, violations those above the limit.

    ## Why it matters
    A deep tree separates single rows: it takes long to build, and the model fits noise of the
    training data. XGBoost's own limit is 6 by default, so that a training with the default often
    exceeds the one of this rule. It is a hint, and no part of the answer to "is the model
    learning?": compare the metrics of training and validation.

    ## What to do
    Lower `max_depth`, or raise `min_child_weight`, `gamma` or `reg_lambda`, if the metrics for
    validation data are no worse then.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger computes the depth as the binary logarithm of the largest number of a node, rounded
    down. That is right for a complete tree. XGBoost numbers the nodes of another one without gaps,
    so that the result is too small; here the depth is that of the tree. With `by_node_id=true` it
    is Debugger's.
    """

    parameters_type = TreeDepthParameters
    recommendation = "Lower max_depth or raise min_child_weight, if validation is no worse then."
    missing = "no trees of XGBoost were recorded"
    advice = "run the job with `--tensors trees`"

    def update(self, state: ModelStates, inputs: RuleInputs) -> ModelStates:
        judged = "largest_node_id" if self.parameters.by_node_id else "depth"
        ranks = {process.process: process.rank for process in inputs.processes}
        for series in inputs.scalars:
            match = _NAME.match(series.name)
            if match is None or match[1] != judged:
                continue
            model = state.find(series.process, series.name, ranks.get(series.process))
            steps = [] if series.step is None else series.step.tolist()
            for row, (t_ns, value) in enumerate(
                zip(series.t_ns.tolist(), series.value.tolist(), strict=True)
            ):
                depth = estimate_depth(value) if self.parameters.by_node_id else int(value)
                number = steps[row] if steps else model.record_count
                is_deep = depth > self.parameters.depth
                model.add(JudgedRound(number, t_ns, float(depth), is_deep), inputs)
        return state

    def describe(self, model: ModelState) -> str:
        first = model.extent[0]
        return (
            f"a tree of round {first.round} has {count(first.value)} levels of splits, more than "
            f"{count(self.parameters.depth)}"
        )
