"""Recording of weights and gradients at the optimizer steps of an unmodified script."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.patching import count_bytes, without_functions
from stepscope.capture.frameworks.pytorch.tensors.rows import ElementWriter, Moment, RowWriter
from stepscope.capture.frameworks.pytorch.tensors.selection import (
    NamePatterns,
    ParameterNames,
    is_bias,
    is_recorded_rank,
)
from stepscope.capture.frameworks.pytorch.tensors.shards import (
    ShardGroup,
    ShardGroups,
    empty_row,
    is_empty_part,
)
from stepscope.capture.frameworks.pytorch.tensors.statistics import (
    Elements,
    HostSummary,
    find_elements,
    histogram,
    summarize_on_device,
)
from stepscope.capture.guard import Probe
from stepscope.spool import POWER_BINS, Kind, TensorPlan

GRADIENT_PREFIX = "gradient/"
"""Prefix of the name of a gradient, as in SageMaker Debugger."""
STATE_PREFIX = "optimizer/"
"""Prefix of the name of what an optimizer keeps for a parameter, such as `optimizer/exp_avg/…`."""
MIN_FREE_RATIO = 2.0
"""Free memory of a device, as a multiple of the weights that are copied before a step."""

CHECKED_STEPS = 3
"""Recorded steps in which a pattern should have matched a tensor."""

_probe = Probe("time of the recording of tensors")
_SPAN_NAME = "stepscope: record tensors"


class _Selection(NamedTuple):
    """Selection of one parameter: its name, and whether its value and its gradient are recorded."""

    name: str
    collection: str
    has_value: bool
    has_gradient: bool


class OpenMoments:
    """Rows by device of tensors that are recorded together.

    Args:
        number: number of steps of the process before this one.
        mode: TRAIN or EVAL.
    """

    def __init__(self, number: int, mode: str) -> None:
        self.number = number
        self.mode = mode
        self.t_ns = time.monotonic_ns()
        self.moments: dict[tuple[torch.device, ShardGroup | None], Moment] = {}

    def moment(self, device: torch.device, shards: ShardGroup | None) -> Moment:
        """Return the rows of a device and of the ranks that share its tensors."""
        moment = self.moments.get((device, shards))
        if moment is None:
            moment = Moment(step=self.number, mode=self.mode, t_ns=self.t_ns, shards=shards)
            self.moments[device, shards] = moment
        return moment


class OpenStep(OpenMoments):
    """Step of an optimizer whose tensors are recorded."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, has_closure: bool) -> None:
        super().__init__(progress.step_count, "TRAIN")
        self.optimizer = optimizer
        self.has_closure = has_closure
        """The gradients are made inside the step."""
        self.copies: dict[int, torch.Tensor] = {}
        """Flat elements before the step, by identity of the parameter."""


class TensorRecorder:
    """Recorder of one process.

    Args:
        plan: what to record.
        model: record only tensors of this model and of those of `watch`; None for all models.
    """

    def __init__(self, plan: TensorPlan, model: torch.nn.Module | None = None) -> None:
        self._plan = plan
        self.watched: weakref.WeakSet[torch.nn.Module] | None = None
        """Only these models are recorded; None for all."""
        self.patterns = NamePatterns(plan.all_patterns)
        self._step_count = 0
        """Recorded steps of optimizers."""
        self._names = ParameterNames()
        self._host = HostSummary()
        self._writer = RowWriter()
        self._elements = ElementWriter(plan, self._writer) if plan.raw_patterns else None
        self._shards = ShardGroups(plan) if plan.joins_shards else None
        self._selections: dict[str, _Selection] = {}
        if model is not None:
            self.watched = weakref.WeakSet()
            self.watch(model)
        self._renew_lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()
        """Held while tensors are read: a step of another thread meanwhile is not recorded."""

    def _after_fork(self) -> None:
        self._renew_lock()
        self._shards = None  # the thread that meets the other ranks is one of the parent
        self._step_count = CHECKED_STEPS  # the parent notes what its patterns have not matched

    def add_model(self, module: torch.nn.Module) -> None:
        """Name parameters by a module that the script calls."""
        if self.watched is None:
            self._names.add(module)

    def watch(self, model: torch.nn.Module) -> None:
        """Record tensors of this model too, if not all models are recorded."""
        if self.watched is not None:
            self.watched.add(model)
            self._names.add(model)

    def start_step(
        self, optimizer: torch.optim.Optimizer, step_count: int, *, has_closure: bool
    ) -> OpenStep | None:
        """Record the gradients that an optimizer is about to use, and remember the weights.

        Args:
            optimizer: the optimizer.
            step_count: number of its steps before this one.
            has_closure: the gradients are made inside the step.

        Returns:
            None for a step that is not recorded.
        """
        if not session.live or is_capturing():
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._poll()
            if not self._plan.records_step(step_count) or not is_recorded_rank(self._plan):
                return None
            span = _probe.start(Kind.ANNOTATION, _SPAN_NAME)
            step = OpenStep(optimizer, has_closure=has_closure)
            if self.watched is not None:
                self._names.add_new_parameters()
            with torch.no_grad(), without_functions():
                if not has_closure:
                    self._add_gradients(step)
                self._copy_weights(step)
            _probe.end(span)
            return step
        finally:
            self._lock.release()

    def end_step(self, step: OpenStep) -> None:
        """Record the weights that an optimizer has changed."""
        if is_capturing():
            return
        with self._lock:
            span = _probe.start(Kind.ANNOTATION, _SPAN_NAME)
            with torch.no_grad(), without_functions():
                if step.has_closure:
                    step.number = progress.step_count  # the forward pass in it has begun the step
                    self._add_gradients(step)
                for parameter, selection in self._select_parameters(step.optimizer):
                    if selection.has_value:
                        before = step.copies.pop(id(parameter), None)
                        name = selection.name, selection.collection
                        self._add(step, *name, parameter, find_elements(parameter), before)
                self._add_optimizer_state(step)
                for moment in step.moments.values():
                    self._writer.write(moment)
            _probe.end(span)
            self._step_count += 1
            if self._step_count == CHECKED_STEPS:
                self._note_unmatched()

    def add_tensor(
        self, moments: OpenMoments, name: str, collection: str, tensor: torch.Tensor
    ) -> None:
        """Record a tensor of a module call, unless another thread reads tensors meanwhile."""
        if self._lock.acquire(blocking=False):
            try:
                span = _probe.start(Kind.ANNOTATION, _SPAN_NAME)
                with torch.no_grad(), without_functions():
                    values = tensor.detach()
                    self._add(moments, name, collection, values, find_elements(values), None)
                _probe.end(span)
            finally:
                self._lock.release()

    def write(self, moments: OpenMoments) -> None:
        """Write the rows of a module call."""
        with self._lock:
            self._poll()
            for moment in moments.moments.values():
                self._writer.write(moment)

    def finish(self) -> None:
        """Write what devices and other ranks have computed; the process ends."""
        self._writer.finish()
        if self._elements is not None:
            self._elements.finish()
        if self._shards is not None:
            self._writer.store_joined(self._shards.finish())
        if self._step_count < CHECKED_STEPS:
            self._note_unmatched()

    def _note_unmatched(self) -> None:
        """Note the patterns that have matched no tensor so far."""
        for text in self.patterns.describe_unmatched(self._step_count):
            current = session.current()
            if current is not None:
                current.note(text)

    def _poll(self) -> None:
        self._writer.poll()
        if self._elements is not None:
            self._elements.poll()
        if self._shards is not None:
            self._writer.store_joined(self._shards.take())

    def _add_gradients(self, step: OpenStep) -> None:
        scale = getattr(step.optimizer, "grad_scale", None)  # of a fused one under GradScaler
        for parameter, selection in self._select_parameters(step.optimizer):
            gradient = parameter.grad
            if not selection.has_gradient or gradient is None:
                continue
            elements = find_elements(gradient)
            if elements is not None and scale is not None:  # in double precision: it may underflow
                values = elements.values.double() / scale.to(elements.values.device)
                elements = elements._replace(values=values)
            name = f"{GRADIENT_PREFIX}{selection.name}"
            raw = None
            if elements is not None and scale is not None and not elements.implied_zeros:
                to_local = getattr(gradient, "to_local", None)  # of a DTensor
                local: torch.Tensor = gradient if to_local is None else to_local()
                raw = elements.values.to(local.dtype).reshape(local.shape)
            self._add(step, name, "gradients", gradient, elements, None, raw)

    def _add_optimizer_state(self, step: OpenStep) -> None:
        for parameter, selection in self._select_parameters(step.optimizer):
            for key, value in (step.optimizer.state.get(parameter) or {}).items():
                name = f"{STATE_PREFIX}{key}/{selection.name}"
                if not isinstance(value, torch.Tensor) or key == "step":
                    continue
                if self.patterns.match(name) or "optimizer" in self._plan.collections:
                    self._add(step, name, "optimizer", value, find_elements(value), None)

    def _select_parameters(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[torch.Tensor, _Selection]]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                has_all_models = self.watched is None
                names = self._names
                name = (names.find if has_all_models else names.find_known)(parameter)
                if name is None:  # a parameter of another model
                    continue
                selection = self._selections.get(name)
                if selection is None:
                    selection = self._selections[name] = self._select(name)
                yield parameter, selection

    def _select(self, name: str) -> _Selection:
        collections = self._plan.collections
        collection = "biases" if is_bias(name) else "weights"
        return _Selection(
            name,
            collection,
            has_value=self.patterns.match(name) or collection in collections,
            has_gradient=self.patterns.match(f"{GRADIENT_PREFIX}{name}")
            or "gradients" in collections,
        )

    def _copy_weights(self, step: OpenStep) -> None:
        """Copy the weights, to know how much the optimizer changes them."""
        # Before the first closure has run, the names are not known.
        copied = [
            (parameter, elements)
            for parameter, selection in self._select_parameters(step.optimizer)
            if selection.has_value or (step.has_closure and not step.number)
            if (elements := find_elements(parameter)) is not None
        ]
        needed_bytes: dict[torch.device, int] = {}
        for _, (values, _) in copied:
            needed_bytes[values.device] = needed_bytes.get(values.device, 0) + count_bytes(values)
        has_room = {device: _has_room(device, size) for device, size in needed_bytes.items()}
        for parameter, (values, _) in copied:
            if has_room[values.device]:
                step.copies[id(parameter)] = values.clone()

    def _add(  # noqa: PLR0917 - one row
        self,
        step: OpenMoments,
        name: str,
        collection: str,
        tensor: torch.Tensor,
        elements: Elements | None,
        before: torch.Tensor | None,
        raw: torch.Tensor | None = None,
    ) -> None:
        if self._elements is not None:
            read = tensor if raw is None else raw
            self._elements.add(name, collection, read, step.t_ns, step.number, step.mode)
        shards = self._shards.find(tensor) if self._shards is not None else None
        row: Any
        powers: torch.Tensor | None = None
        if elements is not None:
            device = elements.values.device
            if before is not None and before.shape != elements.values.shape:
                before = None  # it has grown
            if device.type == "cpu":
                if self._plan.histograms:
                    powers = torch.empty(POWER_BINS, dtype=torch.int32, device=device)
                row = self._host.summarize(elements, before, powers)
            else:
                row = summarize_on_device(elements, before)
                if self._plan.histograms:
                    powers = histogram(elements)
        elif shards is not None and is_empty_part(tensor):  # other ranks have its elements
            device = tensor.device
            row = empty_row(device)
            if self._plan.histograms:
                powers = torch.zeros(POWER_BINS, dtype=torch.int32, device=device)
        else:
            return
        moment = step.moment(device, shards)
        if shards is not None:
            moment.identities.append(f"{collection} {name} {tuple(tensor.shape)} {tensor.dtype}")
        moment.add(self._writer.name(name, collection, tensor), row, powers)


def _has_room(device: torch.device, needed_bytes: int) -> bool:
    if device.type != "cuda":
        return True
    free_bytes, _ = torch.cuda.mem_get_info(device)
    unused_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_bytes + unused_bytes >= MIN_FREE_RATIO * needed_bytes
