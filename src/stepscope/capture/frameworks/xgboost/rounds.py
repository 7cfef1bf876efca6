"""Boosting rounds as optimizer steps, evaluation, and the metrics that it returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from xgboost import Booster

from stepscope.capture import session
from stepscope.capture.frameworks.progress import watch_training
from stepscope.capture.frameworks.tables import XGBOOST
from stepscope.capture.frameworks.xgboost import tensors
from stepscope.capture.frameworks.xgboost.models import SPAN_NAME, Model, describe, find_model
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Flag, Kind

_probe = Probe("boosting rounds", coarse=True)
_evaluation_probe = Probe("evaluation of boosting rounds", coarse=True)
_metric_probe = Probe("evaluation metrics of XGBoost")

_thread = threading.local()
"""`.has_folds` is true while the folds of a cross-validation take a round, `.has_new_folds` after
their first one."""


def install() -> None:
    """Patch the methods of `Booster`."""
    patch(Booster, "update", _timed_round)
    patch(Booster, "boost", _timed_round)
    patch(Booster, "eval_set", _timed_evaluation)
    XGBOOST.patch("folds", _timed_folds)


def _timed_round(original: Callable[..., Any]) -> Callable[..., Any]:
    takes_gradients = original.__name__ == "boost"

    def run_round(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live:
            return original(self, *args, **kwargs)
        model = find_model(self)
        model.has_own_objective |= takes_gradients
        if model.is_boosting:  # `update` calls `boost` if the script has an objective of its own
            return original(self, *args, **kwargs)
        model.is_boosting = True
        is_step = not getattr(_thread, "has_folds", False)
        # All models have one value: a model is not trained in turn with the one before.
        span = _probe.start(Kind.OPTIMIZER, model.span_name) if is_step else None
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            _probe.abandon(span)
            raise
        finally:
            model.is_boosting = False
        _begin_model(model, self)
        _probe.end(span, flags=Flag.NEW_MODEL if model.is_new else 0)
        _thread.has_new_folds = model.is_new
        _end_round(model, self, args[0] if args else kwargs.get("dtrain"))
        return result

    return run_round


def _timed_folds(original: Callable[..., Any]) -> Callable[..., Any]:
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        span = _probe.start(Kind.OPTIMIZER, f"{SPAN_NAME} cross-validation")
        _thread.has_folds, _thread.has_new_folds = True, False
        try:
            return original(self, *args, **kwargs)
        finally:
            _thread.has_folds = False
            _probe.end(span, flags=Flag.NEW_MODEL if _thread.has_new_folds else 0)

    return update


@_probe.protect
def _begin_model(model: Model, booster: Booster) -> None:
    """Find out if the round that has ended is the first of a model. If training goes on with a
    model, such as one that a script trains on one file after another, that is not the case."""
    model.is_new = not model.round_count and booster.num_boosted_rounds() == 1


@_probe.protect
def _end_round(model: Model, booster: Booster, data: Any) -> None:
    watch_training()
    model.round_count += 1
    if model.round_count == 1:
        XGBOOST.tell()
        describe(model, booster, data)
    tensors.add_round(model, booster, data)


def _timed_evaluation(original: Callable[..., Any]) -> Callable[..., Any]:
    def eval_set(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live:
            return original(self, *args, **kwargs)
        model = find_model(self)
        span = _evaluation_probe.start(Kind.MODE, "EVAL")
        try:
            result = original(self, *args, **kwargs)
        finally:
            _evaluation_probe.end(span)
        if model.is_named:
            _record_metrics(model, result)
        tensors.add_evaluation(model, self, args[0] if args else kwargs.get("evals"))
        return result

    return eval_set


@_metric_probe.protect
def _record_metrics(model: Model, result: str) -> None:
    """Record metrics, such as `[7]\\ttrain-rmse:0.25\\ttest-rmse:0.31`, as scalars."""
    t_ns = time.monotonic_ns()
    step = model.round_count - 1 if model.round_count else None
    for metric in result.split("\t")[1:]:
        name, _, text = metric.rpartition(":")
        _metric_probe.scalar(model.name(name), float(text), t_ns, step=step)
