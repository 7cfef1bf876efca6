"""Boosters of the process: their numbers, names and descriptions."""

from __future__ import annotations

import json
import weakref
from typing import Any

import xgboost

from stepscope.capture.guard import Probe

SPAN_NAME = "XGBoost"
"""Name of the rounds of the first model; a number follows for the others."""
MAX_MODELS = 1000
"""Models with names of their own: the number of names in a run is limited."""
MAX_DESCRIBED = 50
"""Models that are described by a fact."""
_PARAMETERS = (
    "eta", "learning_rate", "max_depth", "max_leaves", "min_child_weight", "gamma", "subsample",
    "colsample_bytree", "reg_lambda", "lambda", "reg_alpha", "alpha", "grow_policy", "max_bin",
)  # fmt: skip
"""Recorded parameters of trees, by the names that XGBoost writes."""

_probe = Probe("descriptions of XGBoost models")
_models: dict[int, Model] = {}
"""By identity of the booster."""
_model_count = 0


class Model:
    """One booster.

    Args:
        booster: the booster.
        number: number of the model in the process, from 1.
    """

    __slots__ = (
        "class_count", "has_own_objective", "is_boosting", "is_new", "kind", "number", "objective",
        "reference", "round_count", "state",
    )  # fmt: skip

    def __init__(self, booster: xgboost.Booster, number: int) -> None:
        key = id(booster)
        self.reference = weakref.ref(booster, lambda _: _models.pop(key, None))
        self.number = number
        self.round_count = 0
        """Rounds in this process."""
        self.is_boosting = False
        """A round has started and not ended."""
        self.is_new = False
        """The last round is the first of the model, in this process or before it."""
        self.has_own_objective = False
        """The script computes the gradients."""
        self.objective = ""
        """Name of the objective, such as `binary:logistic`; empty before the first round."""
        self.kind = ""
        """`gbtree`, `dart` or `gblinear`."""
        self.class_count = 0
        """Classes of a multi-class objective; 0 for others."""
        self.state: Any = None
        """What the recorder of tensors remembers."""

    @property
    def is_named(self) -> bool:
        """True unless there are too many models."""
        return self.number <= MAX_MODELS

    @property
    def span_name(self) -> str:
        """Name of its rounds."""
        if not self.is_named:
            return f"{SPAN_NAME} further models"
        return SPAN_NAME if self.number == 1 else f"{SPAN_NAME} model {self.number}"

    def name(self, name: str) -> str:
        """Return the name of one of its metrics or tensors; the first model has no prefix."""
        return name if self.number == 1 else f"model {self.number}/{name}"


def find_model(booster: xgboost.Booster) -> Model:
    """Return the model of a booster, a new one if it has not been seen."""
    global _model_count
    key = id(booster)
    model = _models.get(key)
    if model is None or model.reference() is not booster:
        _model_count += 1
        model = _models[key] = Model(booster, _model_count)
    return model


@_probe.protect
def describe(model: Model, booster: xgboost.Booster, data: Any) -> None:
    """Read the objective of a model after its first round, and record what it is."""
    config = json.loads(booster.save_config())["learner"]
    shared = config["learner_train_param"]
    model.objective, model.kind = shared["objective"], shared["booster"]
    model.class_count = int(config["learner_model_param"]["num_class"])
    if model.number > MAX_DESCRIBED:
        return
    trees = config["gradient_booster"]
    trees = trees.get("gbtree", trees).get("tree_train_param", {})
    _probe.fact(
        "xgboost_model",
        number=model.number,
        xgboost=str(xgboost.__version__),
        objective=model.objective,
        has_own_objective=model.has_own_objective,
        booster=model.kind,
        class_count=model.class_count or None,
        data=type(data).__name__,
        row_count=int(data.num_row()),
        column_count=int(data.num_col()),
        parameters={name: str(trees[name]) for name in _PARAMETERS if name in trees},
    )
