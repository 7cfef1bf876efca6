"""Start and end of the search, checks of operators and losses, and what counts as a failure.

A failure is a loss on which the script calls `backward()`, a gradient that an optimizer uses, or a
parameter after its step, that is not finite. Other NaN, such as that of a metric, is none, and
neither are gradients for which a GradScaler skips the step, until its scale is below one.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.nan_search.origins import Origin, Origins, unseen_phase
from stepscope.capture.frameworks.pytorch.nan_search.values import (
    COLLECTIVE_NAMESPACES,
    Range,
    find_range,
    is_finite,
    tensors_for,
    tensors_in,
    traits_of,
    written_arguments,
)
from stepscope.capture.frameworks.pytorch.patching import (
    patch,
    patch_grad_scaler,
    without_functions,
)
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies
from stepscope.capture.frameworks.pytorch.tensors.scalars import ScaledLosses, patch_scaler
from stepscope.capture.frameworks.pytorch.tensors.selection import is_inside_transform
from stepscope.capture.guard import Probe
from stepscope.spool import FROM_START

_DispatchMode: Any = PYTORCH.find("dispatch_mode")
_current_dispatch_mode: Any = PYTORCH.find("current_dispatch_mode")
_dispatch_modes: Any = PYTORCH.find("dispatch_modes")
_register_pre_hook: Any = PYTORCH.find("step_pre_hook")
_register_post_hook: Any = PYTORCH.find("step_post_hook")
MAX_SEARCHED_STEPS = 100
"""Steps after a loss that is not finite in which it may recur."""
MAX_SEARCHES = 3
MIN_LOSS_SCALE = 1.0
"""A GradScaler below this scale has not found one at which gradients are finite."""


class NanSearch:
    """Search of one process.

    Args:
        probe: guard of the search; a failure ends it.
        start: `FROM_START` or `AFTER_LOSS`.
    """

    def __init__(self, probe: Probe, start: str) -> None:
        self._probe = probe
        self._is_on = start == FROM_START
        """Threads that do a step's work get a mode."""
        self._loss_watch = None if self._is_on else LossWatch(self._note_loss)
        self._scaled = ScaledLosses()
        self._local = threading.local()
        self._origins = Origins()
        self._old_ranges: dict[int, Range] = {}
        self._first_step = 0
        self._loss: tuple[int, float] | None = None
        self._search_count = 0
        self._has_stepped = False
        self._last_read: tuple[int, Origin] | None = None
        self.is_active = self._is_on
        self.before = self._guard(self._before)
        self.after = self._guard(self._after)
        self._is_forked = False
        os.register_at_fork(after_in_child=self._start_again)

    def install(self) -> None:
        """Register for the events of a training script."""
        protect = self._probe.protect
        enter = protect(self._enter)

        def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
            def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
                original(optimizer, *args, **kwargs)
                enter()

            return __init__

        def make_scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
            after = protect(self._after_scaler_step)

            def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                self._has_stepped = False
                result = original(scaler, optimizer, *args, **kwargs)
                after(scaler, optimizer)
                return result

            return step

        patch(torch.optim.Optimizer, "__init__", make_init)
        patch_grad_scaler("step", make_scaler_step)
        patch_scaler(protect(self._scaled.note))
        before_step, after_step = protect(self._before_step), protect(self._after_step)
        _register_pre_hook(lambda optimizer, *_: before_step(optimizer))
        _register_post_hook(lambda optimizer, *_: after_step(optimizer))
        progress.on_work(protect(self._enter_for_work))
        progress.on_boundary(protect(self._on_boundary))
        progress.on_some_boundaries(protect(self._record_first_step))

    def before_backward(self, outputs: Any) -> None:
        """Check the tensors on which the script calls `backward()`."""
        if not isinstance(outputs, (tuple, list)):
            return
        losses = [self._scaled.unscale(loss) for loss in outputs]
        if self.is_active:
            self._enter()
            self._conclude_on(((loss, None) for loss in losses), "loss", unseen_phase="unknown")
        elif self._loss_watch is not None and len(losses) == 1:
            with torch.no_grad(), without_functions():
                self._loss_watch.add(losses[0])

    def finish(self) -> None:
        """Record how the search has ended: the process ends."""
        if not self.is_active:
            if self._loss_watch is not None:
                self._loss_watch.finish()
            return
        is_failed = getattr(sys, "last_type", None) is not None  # an exception ended the script
        if is_failed and self._last_read is not None:
            step, origin = self._last_read
            if step == progress.finished_step_count:
                self._conclude(origin, "value")
                return
        self._record_search()

    def _guard(self, function: Callable[..., None]) -> Callable[..., None]:
        """Protect a check of operators."""

        def guarded(*args: Any) -> None:
            with without_functions():
                function(*args)

        return self._probe.protect(guarded)

    def _before(self, operator: Any, args: Any, kwargs: Any) -> None:
        traits = traits_of(operator)
        if operator.namespace in COLLECTIVE_NAMESPACES:
            self._origins.note_exchange(tensor for tensor, _, _ in tensors_in(args))
        old_ranges: dict[int, Range] = {}
        if traits.is_checked and not is_capturing():
            if torch.is_grad_enabled():
                self._origins.note_site()
            if traits.written and traits.has_old_values:
                for tensor, _, _ in tensors_in(written_arguments(traits, args, kwargs)):
                    values = find_range(tensor)
                    if values is not None:
                        old_ranges[id(tensor)] = values
        self._local.old_ranges = old_ranges

    def _after(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        traits = traits_of(operator)
        results = result if isinstance(result, (list, tuple)) else (result,)
        if not traits.is_checked or is_capturing():
            return
        outputs = {id(entry[0]): entry for entry in tensors_in(results)}
        for entry in tensors_in(written_arguments(traits, args, kwargs)):
            outputs[id(entry[0])] = entry
        self._note_reading(args, result)
        for tensor, index, length in outputs.values():
            values = find_range(tensor)
            if values is None:
                continue
            if is_finite(values):
                self._origins.forget(tensor)
            else:
                self._origins.trace(
                    operator,
                    tensor,
                    values,
                    tensors_for((*args, *kwargs.values()), index, length),
                    old_ranges=self._local.old_ranges,
                    constants=(args, kwargs),
                )

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._has_stepped = True
        if not self.is_active or is_capturing():
            return
        self._origins.is_stepping = True
        # A fused optimizer skips the step itself where a GradScaler has found infinite gradients.
        if getattr(optimizer, "found_inf", None) is None:
            self._conclude_on(_gradients(optimizer), "gradients", unseen_phase=unseen_phase())

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._origins.is_stepping = False
        if self.is_active and not is_capturing():
            self._conclude_on(_parameters(optimizer), "parameters", unseen_phase="optimizer")

    def _after_scaler_step(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        is_skipped = not self._has_stepped or _found_infinite(scaler, optimizer)
        if self.is_active and is_skipped and scaler.get_scale() < MIN_LOSS_SCALE:
            self._conclude_on(_gradients(optimizer), "gradients", unseen_phase=unseen_phase())

    def _note_reading(self, args: Any, result: Any) -> None:
        """Remember that the script reads or tests a number that is not finite."""
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            return
        for tensor, _, _ in tensors_in(args):
            origin = self._origins.find(tensor) if tensor.numel() == 1 else None
            if origin is not None:
                self._last_read = progress.finished_step_count, origin

    def _conclude_on(
        self,
        tensors: Iterable[tuple[torch.Tensor, torch.Tensor | None]],
        reached: str,
        *,
        unseen_phase: str,
    ) -> None:
        """End the search if any of some tensors is not finite.

        Args:
            tensors: those of one failure, with the parameter to which each belongs.
            reached: where the failure is: `loss`, `gradients` or `parameters`.
            unseen_phase: phase of a failure that no operator has been seen to produce.
        """
        self.is_active = False  # what is read here is not checked
        try:
            origins = []
            with torch.no_grad(), without_functions():
                for tensor, parameter in tensors:
                    part = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
                    values = find_range(part)
                    if values is not None and not is_finite(values):
                        origin = self._origins.find_or_describe(part, phase=unseen_phase)
                        origins.append((origin, parameter))
        finally:
            self.is_active = True
        if origins:
            origin, parameter = min(
                origins, key=lambda entry: (entry[0].is_deliberate, entry[0].number)
            )
            self._conclude(origin, reached, parameter)

    def _conclude(
        self, origin: Origin, reached: str, parameter: torch.Tensor | None = None
    ) -> None:
        name = None if parameter is None else self._origins.name_parameter(parameter)
        self._probe.fact(
            "nan_origin",
            **origin.fields,
            reached=reached,
            reached_step=progress.step_count,
            reached_parameter=name,
        )
        self._record_search()
        self._stop()
        self._loss_watch = None

    def _stop(self) -> None:
        self.is_active = self._is_on = False
        mode: CheckMode | None = getattr(self._local, "mode", None)
        if mode is not None:
            self._local.mode = None
            mode.leave()

    def _start_again(self) -> None:
        """Leave the search of the parent, after a fork. A child that trains has one of its own; one
        that only loads data has none."""
        is_on = self._is_on
        self._stop()
        self._is_on = self.is_active = is_on
        self._is_forked = True
        self._origins = Origins()

    def _enter_for_work(self) -> None:
        """Check the operators from the first piece of work on."""
        if not self._is_forked:
            self._enter()

    def _enter(self) -> None:
        """Check the operators of this thread from now on."""
        if self._is_on and getattr(self._local, "mode", None) is None and not has_dispatch_mode():
            self._local.mode = CheckMode(self)
            self._local.mode.__enter__()

    def _note_loss(self, step: int, value: float) -> None:
        """Search from the next step on: this one has done the operator in question."""
        if self._loss is None and self._search_count < MAX_SEARCHES:
            self._loss = step, value
            self._first_step = progress.step_count + 1
            self._record_search()

    def _on_boundary(self) -> None:
        if self.is_active:
            self._origins.start_step()
            is_over = progress.step_count - self._first_step >= MAX_SEARCHED_STEPS
            if self._loss is not None and is_over:
                self._record_search()
                self._stop()
                self._loss = None
        elif self._loss is not None and self._loss_watch is not None:
            self._search_count += 1
            self._first_step = progress.step_count
            self._is_on = self.is_active = True
            self._enter()

    def _record_first_step(self) -> None:
        """Record that the process trains and searches, or will."""
        if progress.step_count == 1:
            self._record_search()

    def _record_search(self) -> None:
        loss_step, loss = self._loss or (None, None)
        self._probe.fact(
            "nan_search",
            first_step=self._first_step,
            step_count=progress.finished_step_count - self._first_step if self.is_active else 0,
            loss_step=loss_step,
            loss=None if loss is None else str(loss),
        )


def _gradients(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for parameter, _ in _parameters(optimizer):
        if parameter.grad is not None:
            yield parameter.grad, parameter


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter, parameter


def _found_infinite(scaler: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Return True if a GradScaler has let a fused optimizer skip its step."""
    return any(float(count) for count in scaler._found_inf_per_device(optimizer).values())


MAX_COPIES = 16
"""Losses on their way from a device; more are not checked meanwhile."""


class LossWatch:
    """Watch over the losses of a process.

    Args:
        notify: takes the step and value of a loss that is not finite.
    """

    def __init__(self, notify: Callable[[int, float], None]) -> None:
        self._notify = notify
        self._copies: HostCopies[int] = HostCopies()

    def add(self, loss: torch.Tensor) -> None:
        """Check a loss, one on a device at a later call."""
        for step, (copy,) in self._copies.take_arrived():
            self._check(step, copy.item())
        if is_inside_transform() or loss.is_meta or loss.numel() != 1 or is_capturing():
            return
        if not loss.is_floating_point():
            return
        if loss.device.type == "cpu":
            self._check(progress.step_count, loss.item())
        elif len(self._copies) < MAX_COPIES:
            self._copies.start(progress.step_count, [loss.detach()])

    def finish(self) -> None:
        """Check the losses that still arrive in time; the process ends."""
        for step, (copy,) in self._copies.await_arrival():
            self._check(step, copy.item())

    def _check(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            self._notify(step, value)


_PLAIN_TYPES = {torch.Tensor, torch.nn.Parameter}
_STAND_INS = "torch._subclasses."
"""Module of tensors without values, with which torch tries out operators."""


class OperatorCheck(Protocol):
    """Check of the operators that run while it is active; its methods must not raise."""

    is_active: bool

    def before(self, operator: Any, args: Any, kwargs: Any) -> None:
        """Look at the arguments."""

    def after(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Look at the results."""


class CheckMode(_DispatchMode):  # type: ignore[misc]
    """Mode that checks operators on plain tensors.

    Those on a subclass, such as DTensor, are checked when it computes on plain ones.
    """

    def __init__(self, check: OperatorCheck) -> None:
        super().__init__()
        self._check = check

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check = self._check
        has_stand_in = False
        if not _PLAIN_TYPES.issuperset(types):
            has_stand_in = any(kind.__module__.startswith(_STAND_INS) for kind in types)
            if not has_stand_in:
                return NotImplemented
        if has_stand_in or not check.is_active:
            return func(*args, **kwargs)
        check.before(func, args, kwargs)
        result = func(*args, **kwargs)
        check.after(func, args, kwargs, result)
        return result

    def leave(self) -> None:
        """Remove the mode from the thread, unless another one is on top of it."""
        if _current_dispatch_mode() is self:
            self.__exit__(None, None, None)


def has_dispatch_mode() -> bool:
    """Return True if the thread is inside a mode, which would leave ours when it is left."""
    return bool(_dispatch_modes())
