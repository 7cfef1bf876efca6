"""Importance of features, trees, labels and predictions, on request: option `--tensors`.

    recorder   what is recorded after a round and after an evaluation, and its way to the spool
    figures    counts, shares and errors of labels and predictions

Labels and predictions themselves are not recorded: only figures of all rows. Without the request
nothing is computed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from stepscope.capture.guard import Probe
from stepscope.job_environment import read_ranks
from stepscope.spool import TENSORS_VARIABLE, TensorPlan

if TYPE_CHECKING:  # imported only in processes with a plan
    import xgboost

    from stepscope.capture.frameworks.xgboost.models import Model
    from stepscope.capture.frameworks.xgboost.tensors.recorder import BoostingRecorder

DEFAULT_INTERVAL = 5
"""Rounds from one recorded round to the next, as in the training report of SageMaker Debugger."""
COLLECTIONS = frozenset({"feature_importance", "trees", "labels", "predictions"})

_probe = Probe("tensors of XGBoost")
_recorder: BoostingRecorder | None = None


@_probe.protect
def add_round(model: Model, booster: xgboost.Booster, data: Any) -> None:
    """Record a model after a round on training data. Never raises."""
    if _recorder is not None:
        _recorder.add_round(model, booster, data)


@_probe.protect
def add_evaluation(model: Model, booster: xgboost.Booster, sets: Any) -> None:
    """Record predictions for evaluated data, as pairs of data and name. Never raises."""
    if _recorder is not None:
        _recorder.add_evaluation(model, booster, sets)


def install() -> None:
    """Start the recording if there is a plan for this process.

    Raises:
        ValueError: the plan cannot be read.
    """
    global _recorder
    text = os.environ.get(TENSORS_VARIABLE)
    if not text:
        return
    plan = TensorPlan.decode(text)
    if COLLECTIONS.intersection(plan.collections) and plan.records_rank(read_ranks().rank or 0):
        from stepscope.capture.frameworks.xgboost.tensors.recorder import BoostingRecorder

        _recorder = BoostingRecorder(plan, DEFAULT_INTERVAL)
