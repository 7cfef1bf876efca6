"""Models of XGBoost that depend on few features."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import TensorValues
from stepscope.quantities import count, count_of, percent
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Ratio, Regex
from stepscope.rules.tensor.boosted_models import (
    BoostedModelRule,
    JudgedRound,
    ModelState,
    ModelStates,
    title_of,
)
from stepscope.schema import BoostedModelFact, Finding

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
            for fact in process.facts_of(BoostedModelFact)
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

    def decide(self, state: ModelStates) -> Finding | None:
        if not state.models and state.has_left_out:
            features = count_of(self.parameters.nfeatures, "feature")
            raise NotApplicable(f"the data of the models have at most {features}")
        if not state.models and state.has_small:
            raise NotApplicable("the models have too few splits so far")
        return super().decide(state)

    def _judge(self, importance: TensorValues, feature_count: int | None) -> JudgedRound | None:
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
