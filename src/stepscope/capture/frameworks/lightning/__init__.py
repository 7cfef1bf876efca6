"""Trainer of Lightning: modes, epochs, callbacks, loggers, checkpoints and logged numbers.

Steps and phases are those of PyTorch. Arguments of the script, callbacks and their order stay as
they are: classes are patched, and no callback is added.
"""

from __future__ import annotations

import sys

from stepscope.capture.frameworks.trainers import record_as, record_numbers, time_methods
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOGGER_METHODS = ("log_metrics", "save")
_probe = Probe("Lightning")


def install() -> None:
    """Patch the package `lightning.pytorch`, whose trainer has been imported."""
    _install("lightning.pytorch")


def install_standalone() -> None:
    """Patch the package `pytorch_lightning`."""
    _install("pytorch_lightning")


def _install(package: str) -> None:
    modules = sys.modules
    trainer = modules[f"{package}.trainer.trainer"].Trainer
    patch(trainer, "_run", _times_callbacks(package))
    patch(trainer, "save_checkpoint", record_as(Kind.CHECKPOINT, "Trainer.save_checkpoint"))
    loops = f"{package}.loops"
    patch(modules[f"{loops}.evaluation_loop"]._EvaluationLoop, "run", record_as(Kind.MODE, "EVAL"))
    patch(
        modules[f"{loops}.prediction_loop"]._PredictionLoop, "run", record_as(Kind.MODE, "PREDICT")
    )
    patch(modules[f"{loops}.fit_loop"]._FitLoop, "advance", record_as(Kind.ANNOTATION, "epoch"))
    connector = f"{package}.trainer.connectors.logger_connector.logger_connector"
    patch(modules[connector], "convert_tensors_to_scalars", _records_numbers)


def _times_callbacks(package: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    callback = sys.modules[f"{package}.callbacks.callback"].Callback
    logger = sys.modules[f"{package}.loggers.logger"].Logger
    hooks = [name for name in vars(callback) if name.startswith("on_")]

    @_probe.protect
    def time_all(trainer: Any) -> None:
        for instance in trainer.callbacks:
            time_methods(instance, callback, hooks)
        for instance in trainer.loggers:
            time_methods(instance, logger, LOGGER_METHODS)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
            time_all(self)
            return original(self, *args, **kwargs)

        return _run

    return make_wrapper


def _records_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record numbers that Lightning has read from the device itself, for its loggers."""

    def convert_tensors_to_scalars(data: Any) -> Any:
        values = original(data)
        if isinstance(values, dict):
            record_numbers(values)
        return values

    return convert_tensors_to_scalars
