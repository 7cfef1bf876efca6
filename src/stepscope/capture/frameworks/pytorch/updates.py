"""Updates of parameters without a torch optimizer, to tell training steps from micro-batches.

Before each backward pass a few parameters of the modules that are trained are compared with their
state after the backward pass before: an update in place (`with torch.no_grad(): p -= lr * p.grad`)
raises their version counter. An update through `p.data` does not, but clearing or zeroing the
gradients shows. Only metadata of tensors is read, and nothing at all once an optimizer has stepped.
"""

from __future__ import annotations

import weakref
from itertools import islice

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe

MAX_MODULES = 31
"""Limit for scripts that create a module in every step; two bits of a record's value per module."""

_probe = Probe("updates of parameters")


class _WatchedParameter:
    """A parameter and its state after the last backward pass."""

    __slots__ = ("bit", "gradient", "reference", "version")

    def __init__(self, parameter: torch.nn.Parameter, bit: int) -> None:
        self.bit = bit
        self.reference = weakref.ref(parameter)
        self.remember(parameter)

    def remember(self, parameter: torch.nn.Parameter) -> None:
        self.version = parameter._version
        self.gradient = _gradient_state(parameter)

    def compare(self, parameter: torch.nn.Parameter) -> int:
        """Return the bits of what has changed since `remember`."""
        changes = self.bit if parameter._version != self.version else 0
        if _gradient_state(parameter) != self.gradient:
            changes |= self.bit << MAX_MODULES
        return changes


class UpdateWatch:
    """Watch over the parameters of the modules that a script calls with gradients."""

    def __init__(self) -> None:
        self.changes = 0
        """Bit n: module n was updated between the last two backward passes; bit 31 + n: its
        gradients were cleared."""
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._module_count = 0
        self._parameters: list[_WatchedParameter] = []
        self._passes = 0
        self._passes_per_step = 1

    def add(self, module: torch.nn.Module) -> None:
        """Watch a module that was called with gradients."""
        key = id(module)
        reference = self._modules.get(key)
        if (reference is not None and reference() is module) or self._module_count >= MAX_MODULES:
            return
        self._modules[key] = weakref.ref(module)
        parameters = [p for p in module.parameters() if _is_watchable(p)]
        if parameters:
            bit = 1 << self._module_count
            self._module_count += 1
            ends = [*islice(parameters, 1), *parameters[1:][-1:]]
            self._parameters += [_WatchedParameter(parameter, bit) for parameter in ends]

    def before_backward(self) -> None:
        """Find what changed since the last backward pass."""
        self.changes = 0
        if not progress.has_optimizer:
            progress.notify_backward_start()
        with torch._C.DisableTorchFunction():
            for watched in self._parameters:
                parameter = watched.reference()
                if parameter is not None:
                    self.changes |= watched.compare(parameter)
        if self.changes:
            self._passes_per_step, self._passes = max(1, self._passes), 0

    def after_backward(self) -> None:
        """Remember the state of the parameters."""
        with torch._C.DisableTorchFunction():
            for watched in self._parameters:
                parameter = watched.reference()
                if parameter is not None:
                    watched.remember(parameter)
        self._passes += 1
        if self._passes >= self._passes_per_step and not progress.has_optimizer:
            progress.notify_last_backward()


def _is_watchable(parameter: torch.nn.Parameter) -> bool:
    """Return True for a plain trainable parameter; tensors of inference mode have no versions."""
    is_plain = type(parameter) is torch.nn.Parameter and not parameter.is_inference()
    return is_plain and parameter.requires_grad and parameter.is_leaf


def _gradient_state(parameter: torch.nn.Parameter) -> tuple[int, int] | None:
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)


_watch = UpdateWatch()
add = _probe.protect(_watch.add)
_before = _probe.protect(_watch.before_backward)
after_backward = _probe.protect(_watch.after_backward)


def before_backward() -> int:
    """Return the changes since the last backward pass, as bits; see `UpdateWatch.changes`."""
    _before()
    return _watch.changes
