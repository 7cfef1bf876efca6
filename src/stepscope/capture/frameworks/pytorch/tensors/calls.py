"""Activations, inputs and outputs in module calls, and units that have stopped to respond.

Hooks are on selected modules, and only during a recorded outermost call: other calls cost nothing,
a model that is copied or saved between calls has no hook, and modules that are added or replaced
need no care. What activation checkpointing computes once more in the backward pass is not recorded.

Units (features or channels) of activation functions that have stopped to respond. They are recorded
as tensors of zeros and ones, one element per unit: the mean is their share.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stepscope.capture import batches, session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.models import MAX_DEPTH, find_tensors
from stepscope.capture.frameworks.pytorch.patching import is_compiling, without_functions
from stepscope.capture.frameworks.pytorch.tensors.recorder import OpenMoments, TensorRecorder
from stepscope.capture.frameworks.pytorch.tensors.selection import (
    find_class_name,
    holds,
    is_plain_execution,
    is_recorded_rank,
    strip_wrappers,
)
from stepscope.spool import TensorPlan

ACTIVATION_PREFIX, INPUT_PREFIX = "activation/", "input/"
"""Prefixes of the names of the output and of the input of a module inside a model."""
MODEL_INPUT_PREFIX, MODEL_OUTPUT_PREFIX = "model_input/", "model_output/"
"""Prefixes of the names of the arguments and of the result of an outermost call."""

_OPAQUE = (torch.jit.ScriptModule,)
"""Modules that run no Python hooks inside."""
_FUSED_IN_EVALUATION = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer)
"""Modules that compute in another way, with other rounding, if one inside has a hook."""
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Identity)


class OpenCall:
    """Outermost call whose tensors are recorded, with the hooks to remove at its end."""

    def __init__(self, moments: OpenMoments, prefix: str, *, is_whole: bool = True) -> None:
        self.moments = moments
        self.prefix = prefix
        self.is_whole = is_whole
        """The called module is recorded with its inputs and outputs, not a model inside alone."""
        self.handles: list[Any] = []

    def remove_hooks(self) -> None:
        """Remove the hooks from the modules."""
        while self.handles:
            self.handles.pop().remove()


class _Evaluations:
    """Calls of one model for evaluation."""

    __slots__ = ("count", "recorded_step")

    def __init__(self) -> None:
        self.count = 0
        self.recorded_step = -1
        """Step in which the last recorded one was."""


class CallRecorder:
    """Recorder of the module calls of one process.

    If a module is called several times in a step, the first call is recorded. Calls for evaluation
    are counted by themselves; at most one in a step is recorded.

    Args:
        plan: what to record.
        recorder: takes the tensors.
        fail: takes an error in a hook, where the caller of `start` cannot see it.
    """

    def __init__(
        self, plan: TensorPlan, recorder: TensorRecorder, fail: Callable[[Exception], None]
    ) -> None:
        self._plan = plan
        self._recorder = recorder
        self._fail = fail
        self._patterns = recorder.patterns
        self._prefixes: weakref.WeakKeyDictionary[torch.nn.Module, str] = (
            weakref.WeakKeyDictionary()
        )
        self._evaluations: weakref.WeakKeyDictionary[torch.nn.Module, _Evaluations] = (
            weakref.WeakKeyDictionary()
        )
        self._step = -1
        self._recorded: set[tuple[str, str]] = set()
        """Mode and name of what is recorded in the step."""

    def start(
        self, module: torch.nn.Module, args: Any, kwargs: Any, *, is_evaluation: bool
    ) -> OpenCall | None:
        """Record the inputs of an outermost call, and place the hooks.

        Returns:
            None for a call that is not recorded.
        """
        step = progress.step_count
        is_recorded = (
            self._selects_evaluation(module, step)
            if is_evaluation
            else self._plan.records_step(step)
        )
        if not is_recorded or not session.live or not is_plain_execution():
            return None
        if not is_recorded_rank(self._plan):
            return None
        if step != self._step:
            self._step, self._recorded = step, set()
        models = self._select_models(module, is_evaluation=is_evaluation)
        if not models:
            return None
        mode = "EVAL" if is_evaluation else "TRAIN"
        is_whole = models[0] is module or holds(module, models[0])
        call = OpenCall(OpenMoments(step, mode), self._prefix(module), is_whole=is_whole)
        if is_whole:
            items = [*enumerate(args), *kwargs.items()]
            self._add_all(call, "inputs", MODEL_INPUT_PREFIX + call.prefix, items)
        try:
            for model in models:
                self._place_hooks(call, model)
        except Exception:
            call.remove_hooks()
            raise
        return call

    def _selects_evaluation(self, module: torch.nn.Module, step: int) -> bool:
        """Count a call for evaluation, and return True if it is to be recorded."""
        calls = self._evaluations.get(module)
        if calls is None:
            calls = self._evaluations[module] = _Evaluations()
        call, calls.count = calls.count, calls.count + 1
        if calls.recorded_step == step or not self._plan.records_evaluation(step, call):
            return False
        calls.recorded_step = step
        return True

    def end(self, call: OpenCall, result: Any) -> None:
        """Record the outputs of an outermost call."""
        if call.is_whole:
            is_named = isinstance(result, dict)
            items = [*result.items()] if is_named else [*enumerate(_as_tuple(result))]
            self._add_all(call, "outputs", MODEL_OUTPUT_PREFIX + call.prefix, items)
        self._recorder.write(call.moments)

    def _select_models(
        self, module: torch.nn.Module, *, is_evaluation: bool
    ) -> list[torch.nn.Module]:
        """Return the models to record in the call of a module: itself, or those inside that are
        watched."""
        watched = self._recorder.watched
        if watched is None or module in watched:
            return [module]
        inside = (inner for _, inner in _walk(module, is_evaluation=is_evaluation))
        return [inner for inner in inside if inner in watched]

    def _place_hooks(self, call: OpenCall, model: torch.nn.Module) -> None:
        for path, module in _walk(model, is_evaluation=call.moments.mode == "EVAL"):
            name = call.prefix + strip_wrappers(path, find_class_name(model))
            is_leaf = not module._modules and not isinstance(module, _CONTAINERS)
            if self._is_selected("activations" if is_leaf else "", ACTIVATION_PREFIX + name):
                call.handles.append(module.register_forward_hook(self._output_hook(call, name)))
            # PoorWeightInitialization compares the inputs of rectifiers.
            is_rectifier = isinstance(module, RECTIFIERS)
            if self._is_selected("activations" if is_rectifier else "", INPUT_PREFIX + name):
                hook = self._input_hook(call, name)
                call.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def _output_hook(self, call: OpenCall, name: str) -> Callable[..., None]:
        def record_output(module: Any, args: Any, result: Any) -> None:
            if is_compiling():
                return
            self._add_output(call, "activations", ACTIVATION_PREFIX + name, result)
            self._add_units(call, module, args, result, name)

        return record_output

    def _input_hook(self, call: OpenCall, name: str) -> Callable[..., None]:
        def record_input(module: Any, args: Any, kwargs: Any) -> None:
            if is_compiling():
                return
            self._add_output(call, "inputs", INPUT_PREFIX + name, (*args, *kwargs.values()))

        return record_input

    def _add_output(self, call: OpenCall, collection: str, name: str, result: Any) -> None:
        """Record the tensors that a module takes or returns; the first has the plain name."""
        try:
            for number, (path, tensor) in enumerate(_find(enumerate(_as_tuple(result)))):
                self._add(call, collection, name if not number else f"{name}.{path}", tensor)
        except Exception as error:  # noqa: BLE001 - the guard
            call.remove_hooks()
            self._fail(error)

    def _add_units(self, call: OpenCall, module: Any, args: Any, result: Any, name: str) -> None:
        try:
            units = find_stopped_units(module, args, result) if is_plain_execution() else None
            if units is not None:
                prefix, tensor = units
                self._add(call, prefix.rstrip("/"), prefix + name, tensor)
        except Exception as error:  # noqa: BLE001 - the guard
            call.remove_hooks()
            self._fail(error)

    def _add_all(
        self, call: OpenCall, collection: str, prefix: str, items: list[tuple[Any, Any]]
    ) -> None:
        for path, tensor in _find(items):
            if self._is_selected(collection, f"{prefix}{path}"):
                self._add(call, collection, f"{prefix}{path}", tensor)

    def _add(self, call: OpenCall, collection: str, name: str, tensor: torch.Tensor) -> None:
        key = call.moments.mode, name
        if key not in self._recorded and is_plain_execution():
            self._recorded.add(key)
            self._recorder.add_tensor(call.moments, name, collection, tensor)
            if collection == "inputs" and name.startswith(MODEL_INPUT_PREFIX):
                batches.add_model_input(name, tensor, call.moments.number, call.moments.mode)

    def _is_selected(self, collection: str, name: str) -> bool:
        return self._patterns.match(name) or collection in self._plan.collections

    def _prefix(self, model: torch.nn.Module) -> str:
        """Return the prefix of the names in a model: none for the first, then its class."""
        prefix = self._prefixes.get(model)
        if prefix is None:
            used, class_name = set(self._prefixes.values()), find_class_name(model)
            candidates = ["", f"{class_name}."]
            candidates += [f"{class_name}#{number}." for number in range(2, len(used) + 2)]
            prefix = next(text for text in candidates if text not in used)
            self._prefixes[model] = prefix
        return prefix


def _walk(model: torch.nn.Module, *, is_evaluation: bool) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield path and module of all modules inside a model whose calls run Python code.

    Compiled modules are left out with all inside: their hooks would be compiled.
    """
    visited = {model}
    stack = [("", model)]
    while stack:
        path, module = stack.pop()
        if path:
            yield path, module
        if type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None:
            continue
        if isinstance(module, _OPAQUE):
            continue
        if is_evaluation and isinstance(module, _FUSED_IN_EVALUATION):
            continue
        for name, child in reversed(module._modules.items()):
            if child is not None and child not in visited and not isinstance(child, _OPAQUE):
                visited.add(child)
                stack.append((f"{path}.{name}" if path else name, child))


def _find(items: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return find_tensors(list(items), "", MAX_DEPTH)


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


DEAD_PREFIX, SATURATED_PREFIX = "dead_units/", "saturated_units/"
"""Prefixes of the names of these tensors."""
INACTIVE_RATIO = 0.01
"""A unit has stopped if less than this share of its elements in a call is active: the
`threshold_inactivity` of DeadRelu and SaturatedActivation in SageMaker Debugger."""
RECTIFIERS = (torch.nn.ReLU, torch.nn.ReLU6)
_LIMITS = {torch.nn.Tanh: (-9.4999, 9.4999), torch.nn.Sigmoid: (-23.0, 16.99999)}
"""Inputs outside have a derivative below 1e-7; the limits of Debugger."""


def find_stopped_units(
    module: torch.nn.Module, args: tuple[Any, ...], result: Any
) -> tuple[str, torch.Tensor] | None:
    """Find the units of an activation function that do not respond in a call.

    Returns:
        Prefix of the name, and one element per unit on the device of the call, 1 if it has stopped;
        None for other modules.
    """
    with torch.no_grad(), without_functions():
        if isinstance(module, RECTIFIERS) and _is_usable(result):
            return DEAD_PREFIX, _find_inactive(result.detach() > 0)
        limits = _LIMITS.get(type(module))
        if limits is None or not args or not _is_usable(args[0]):
            return None
        low, high = limits
        values = args[0].detach()
        return SATURATED_PREFIX, _find_inactive((values > low) & (values < high))


def _is_usable(tensor: Any) -> bool:
    return type(tensor) is torch.Tensor and bool(tensor.numel()) and not tensor.is_meta


def _find_inactive(is_active: torch.Tensor) -> torch.Tensor:
    """Return one element per unit: 1 if too few of its elements are active.

    Units are the last dimension of sequences and batches, the second one of images and volumes.
    """
    axis = 1 if is_active.dim() > 3 else -1
    by_unit = is_active.movedim(axis, 0).reshape(
        is_active.shape[axis] if is_active.dim() else 1, -1
    )
    return (by_unit.sum(1) < INACTIVE_RATIO * by_unit.shape[1]).to(torch.uint8)
