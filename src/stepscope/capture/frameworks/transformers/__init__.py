"""Trainer of Hugging Face Transformers: modes, epochs, callbacks, checkpoints and logged numbers.

Steps and phases are those of PyTorch. Callbacks and arguments of the script stay as they are.
"""

from __future__ import annotations

import sys
import threading

from stepscope.capture.frameworks.trainers import record_as, record_logged, time_methods
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_probe = Probe("the trainer of Transformers")
_thread = threading.local()
"""`.epoch` is the open interval of an epoch."""


def install() -> None:
    """Patch the module `transformers.trainer`, which has been imported."""
    trainer = sys.modules["transformers.trainer"].Trainer
    callbacks = sys.modules["transformers.trainer_callback"]
    patch(trainer, "evaluate", record_as(Kind.MODE, "EVAL"))
    patch(trainer, "predict", record_as(Kind.MODE, "PREDICT"))
    patch(trainer, "_save_checkpoint", record_as(Kind.CHECKPOINT, "Trainer._save_checkpoint"))
    patch(trainer, "log", record_logged("logs"))
    patch(callbacks.CallbackHandler, "call_event", _times_callbacks(callbacks.TrainerCallback))


def _times_callbacks(base: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    hooks = [name for name in vars(base) if name.startswith("on_")]

    @_probe.protect
    def prepare(handler: Any, event: str) -> None:
        for instance in handler.callbacks:
            time_methods(instance, base, hooks)
        if event == "on_epoch_begin":
            _thread.epoch = _probe.start(Kind.ANNOTATION, "epoch")

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_event(self: Any, event: str, *args: Any, **kwargs: Any) -> Any:
            prepare(self, event)
            try:
                return original(self, event, *args, **kwargs)
            finally:
                if event == "on_epoch_end":
                    _probe.end(getattr(_thread, "epoch", None))
                    _thread.epoch = None

        return call_event

    return make_wrapper
