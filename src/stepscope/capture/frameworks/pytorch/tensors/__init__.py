"""Statistics of weights, gradients and losses, on request: `stepscope run --tensors`.

    recorder     what is recorded at an optimizer step
    losses       the tensors on which the script calls `backward()`
    naming       names of parameters
    statistics   reductions of tensors, on the host and on devices
    rows         their way to the spool

Without the request nothing is installed, and the hooks of the other adapters find None. Statistics
read tensors and change none; random numbers are not used.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

from stepscope.capture.guard import Probe
from stepscope.spool import TENSORS_VARIABLE, TensorPlan

_probe = Probe("tensors")
_loss_probe = Probe("losses")

add_model: Callable[[Any], None] | None = None
"""Takes the module of each outermost call; None without a request for parameters or gradients."""
before_step: Callable[[Any], None] | None = None
"""Takes an optimizer before each of its steps; None like `add_model`."""
after_step: Callable[[], None] | None = None
"""Called after each optimizer step; None like `add_model`."""
add_loss: Callable[[Any], None] | None = None
"""Takes the tensors of each backward pass; None without a request for losses."""


def install() -> None:
    """Start the recording if there is a plan for this process.

    Raises:
        ValueError: the plan cannot be read.
    """
    global add_model, before_step, after_step, add_loss
    text = os.environ.get(TENSORS_VARIABLE)
    if not text:
        return
    plan = TensorPlan.decode(text)
    if not plan.records_rank(int(os.environ.get("RANK") or 0)):
        return
    if plan.patterns or set(plan.collections) - {"losses"}:
        from stepscope.capture.frameworks.pytorch.tensors.recorder import TensorRecorder

        recorder = TensorRecorder(plan)
        add_model = _probe.protect(recorder.add_model)
        before_step = _probe.protect(recorder.before_step)
        after_step = _probe.protect(recorder.after_step)
        atexit.register(_probe.protect(recorder.finish))
    if "losses" in plan.collections:
        from stepscope.capture.frameworks.pytorch.tensors.losses import LossRecorder, patch_scaler

        losses = LossRecorder()
        add_loss = _loss_probe.protect(losses.add)
        patch_scaler(_loss_probe.protect(losses.note_scaled))
        atexit.register(_loss_probe.protect(losses.finish))
