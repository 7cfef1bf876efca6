"""Statistics of weights, gradients, activations and losses, on request: option `--tensors`, or
`stepscope.watch` in the script.

    recorder     what is recorded at an optimizer step
    calls        activations, inputs and outputs of calls; units that have stopped to respond
    batches      classes, tokens and images that the script hands over
    scalars      losses, scale of a GradScaler, clipping of gradients
    selection    which names and ranks are recorded
    statistics   reductions of tensors, on the host and on devices
    shards       statistics of whole tensors whose parts are on several ranks
    rows         rows and elements on their way to the spool
    host_copies  copies from a device to the host

Without the request nothing is installed, and the hooks of the other adapters find None. Statistics
read tensors and change none; random numbers are not used.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
from stepscope.spool import TENSORS_VARIABLE, TensorPlan

if TYPE_CHECKING:  # imported only in processes with a plan
    import torch

    from stepscope.capture.frameworks.pytorch.tensors.calls import CallRecorder, OpenCall
    from stepscope.capture.frameworks.pytorch.tensors.recorder import OpenStep, TensorRecorder

_probe = Probe("tensors")
_loss_probe = Probe("losses")
_call_probe = Probe("activations, inputs and outputs of modules")
_SCALAR_COLLECTIONS = {"losses", "gradients"}
"""With either of these, the scale of a GradScaler and the clipping of gradients are recorded."""
_CALL_COLLECTIONS = {"activations", "inputs", "outputs"}
_COLLECTIONS = {"weights", "biases", "gradients", "optimizer", *_CALL_COLLECTIONS}
"""Collections of tensors that are recorded at steps and calls."""

recorder: TensorRecorder | None = None
"""None without a request for parameters or gradients. Callers test it: a call would cost time."""
calls: CallRecorder | None = None
"""None without a request for what modules take and return."""
add_loss: Callable[[Any], None] | None = None
"""Takes the tensors of each backward pass; None without a request for losses."""
add_module_loss: Callable[[torch.nn.Module, Any, bool], None] | None = None
"""Takes what each loss module returns, and whether it evaluates; None likewise."""
_has_scalars = False
"""The functions behind the scale and the clipping are patched; twice, each would count twice."""


@_probe.protect
def add_model(module: torch.nn.Module) -> None:
    """Name parameters by the module of an outermost call. Never raises."""
    if recorder is not None:
        recorder.add_model(module)


def start_step(
    optimizer: torch.optim.Optimizer, step_count: int, *, has_closure: bool
) -> OpenStep | None:
    """Record what an optimizer is about to use; see `TensorRecorder`. Never raises."""
    if recorder is None or not _probe.alive:
        return None
    try:
        return recorder.start_step(optimizer, step_count, has_closure=has_closure)
    except Exception as error:  # noqa: BLE001 - the guard
        _probe.fail(error)
        return None


@_probe.protect
def end_step(step: OpenStep) -> None:
    """Record what an optimizer has changed. Never raises."""
    if recorder is not None:
        recorder.end_step(step)


def start_call(
    module: torch.nn.Module, args: Any, kwargs: Any, *, is_evaluation: bool
) -> OpenCall | None:
    """Record what a model is about to take; see `CallRecorder`. Never raises."""
    if calls is None or not _call_probe.alive:
        return None
    try:
        return calls.start(module, args, kwargs, is_evaluation=is_evaluation)
    except Exception as error:  # noqa: BLE001 - the guard
        _call_probe.fail(error)
        return None


@_call_probe.protect
def end_call(call: OpenCall, result: Any) -> None:
    """Record what a model has returned. Never raises."""
    if calls is not None:
        calls.end(call, result)


def install() -> None:
    """Start the recording if there is a plan for this process.

    Raises:
        ValueError: the plan cannot be read.
    """
    text = os.environ.get(TENSORS_VARIABLE)
    if text:
        start(TensorPlan.decode(text))


@_probe.protect
def start_watching(plan: TensorPlan, model: torch.nn.Module) -> None:
    """Record the tensors of a model, as `start` does. Never raises."""
    start(plan, model)


def start(plan: TensorPlan, model: torch.nn.Module | None = None) -> None:
    """Start the recording, or extend it to one more model.

    Args:
        plan: what to record; for a further model that of the first one stays.
        model: record only tensors of this model and of others that are given; None for all.
    """
    global recorder, calls, add_loss, add_module_loss, _has_scalars
    if recorder is not None:
        if model is not None:
            recorder.watch(model)
        return
    progress.is_plain = False
    if plan.all_patterns or _COLLECTIONS & set(plan.collections):
        from stepscope.capture.frameworks.pytorch.tensors.recorder import TensorRecorder

        recorder = TensorRecorder(plan, model)
        atexit.register(_probe.protect(recorder.finish))
        if plan.all_patterns or _CALL_COLLECTIONS & set(plan.collections):
            from stepscope.capture.frameworks.pytorch.tensors.calls import CallRecorder

            calls = CallRecorder(plan, recorder, _call_probe.fail)
    if "losses" in plan.collections and add_loss is None:
        from stepscope.capture.frameworks.pytorch.tensors.scalars import LossRecorder, patch_scaler

        losses = LossRecorder(plan)
        add_loss = _loss_probe.protect(losses.add)
        add_module_loss = _loss_probe.protect(losses.add_of_module)
        patch_scaler(_loss_probe.protect(losses.note_scaled))
        atexit.register(_loss_probe.protect(losses.finish))
    if _SCALAR_COLLECTIONS & set(plan.collections) and not _has_scalars:
        from stepscope.capture.frameworks.pytorch.tensors.scalars import GradientScalars

        scalars, _has_scalars = GradientScalars(plan), True
        scalars.install()
        atexit.register(scalars.finish)
