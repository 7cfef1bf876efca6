"""Recording of weights, gradients and losses at the optimizer steps of an unmodified script."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.tensors.naming import ParameterNames
from stepscope.capture.frameworks.pytorch.tensors.rows import Moment, RowWriter
from stepscope.capture.frameworks.pytorch.tensors.statistics import (
    Elements,
    HostSummary,
    find_elements,
    histogram,
    summarize_on_device,
)
from stepscope.capture.guard import Probe
from stepscope.spool import Kind, TensorPlan

GRADIENT_PREFIX = "gradient/"
"""Prefix of the name of a gradient, as in SageMaker Debugger."""
_MIN_FREE_SHARE = 2.0
"""The copy of the weights before a step may take half of the device memory that is free."""

_probe = Probe("tensors")
_span_probe = Probe("time of the recording of tensors")


class _Selection(NamedTuple):
    """Selection of one parameter: its name, and whether its value and its gradient are recorded."""

    name: str
    collection: str
    has_value: bool
    has_gradient: bool


class TensorRecorder:
    """Recorder of one process.

    Args:
        plan: what to record.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._patterns = [re.compile(pattern) for pattern in plan.patterns]
        self._names = ParameterNames()
        self._host = HostSummary()
        self._writer = RowWriter()
        self._parameters: dict[str, _Selection] = {}
        self._thread = 0
        self._step: _OpenStep | None = None

    def add_model(self, module: torch.nn.Module) -> None:
        """Name parameters by a module that the script calls."""
        self._names.add(module)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the gradients that an optimizer is about to use, and remember the weights."""
        self._step = None
        self._writer.poll()
        thread = self._thread = self._thread or threading.get_ident()
        number = progress.step_count
        if thread != threading.get_ident() or not self._plan.records_step(number):
            return
        span = _span_probe.start(Kind.ANNOTATION, "stepscope: record tensors")
        step = _OpenStep(number)
        scale = getattr(optimizer, "grad_scale", None)  # of a fused optimizer under GradScaler
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for parameter, selection in self._select_parameters(optimizer):
                gradient = parameter.grad
                if selection.has_gradient and gradient is not None:
                    if scale is not None:
                        gradient = gradient / scale
                    self._add(step, f"{GRADIENT_PREFIX}{selection.name}", "gradients", gradient)
                if selection.has_value:
                    step.weights.append((parameter, selection))
            self._copy_weights(step)
        _span_probe.end(span)
        self._step = step

    def after_step(self) -> None:
        """Record the weights that an optimizer has changed."""
        step, self._step = self._step, None
        if step is None:
            return
        span = _span_probe.start(Kind.ANNOTATION, "stepscope: record tensors")
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for (parameter, selection), before in zip(step.weights, step.before, strict=True):
                self._add(step, selection.name, selection.collection, parameter, before)
            for moment in step.moments.values():
                self._writer.write(moment)
        _span_probe.end(span)

    def finish(self) -> None:
        """Write what the device has computed; the process ends."""
        self._writer.poll(wait=True)

    def _select_parameters(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[torch.Tensor, _Selection]]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._names.find(parameter)
                selection = self._parameters.get(name)
                if selection is None:
                    selection = self._parameters[name] = self._select(name)
                if selection.has_value or selection.has_gradient:
                    yield parameter, selection

    def _select(self, name: str) -> _Selection:
        collections = self._plan.collections
        collection = "biases" if name.rpartition(".")[2] == "bias" else "weights"
        gradient = f"{GRADIENT_PREFIX}{name}"
        return _Selection(
            name,
            collection,
            has_value=collection in collections or self._is_matched(name),
            has_gradient="gradients" in collections or self._is_matched(gradient),
        )

    def _is_matched(self, name: str) -> bool:
        return any(pattern.search(name) for pattern in self._patterns)

    def _copy_weights(self, step: _OpenStep) -> None:
        """Copy the weights, to know how much the optimizer changes them."""
        total_bytes = sum(parameter.nbytes for parameter, _ in step.weights)
        has_room = True
        if step.weights and step.weights[0][0].device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info(step.weights[0][0].device)
            has_room = free_bytes >= _MIN_FREE_SHARE * total_bytes
        for parameter, _ in step.weights:
            elements = find_elements(parameter) if has_room else None
            step.before.append(None if elements is None else elements.values.clone())

    def _add(
        self,
        step: _OpenStep,
        name: str,
        collection: str,
        tensor: torch.Tensor,
        before: torch.Tensor | None = None,
    ) -> None:
        elements = find_elements(tensor)
        if elements is None:
            return
        values: Any
        if elements.values.device.type == "cpu":
            values = self._host.summarize(elements, before)
        else:
            values = summarize_on_device(elements, before)
        number = self._writer.name(name, collection, tensor)
        counts = histogram(elements) if self._plan.histograms else None
        step.moment(elements).add(number, values, counts)


class _OpenStep:
    """An optimizer step whose tensors are recorded."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.t_ns = time.monotonic_ns()
        self.weights: list[tuple[torch.Tensor, _Selection]] = []
        self.before: list[torch.Tensor | None] = []
        self.moments: dict[torch.device, Moment] = {}

    def moment(self, elements: Elements) -> Moment:
        """Return the rows of the device of a tensor."""
        device = elements.values.device
        if device not in self.moments:
            self.moments[device] = Moment(step=self.number, mode="TRAIN", t_ns=self.t_ns)
        return self.moments[device]
