"""Origins of the non-finite numbers of each tensor, with line, module and phase.

A result with NaN or infinite elements has the origin of the arguments that have such elements. If
none has, the operator is the origin. An infinite number is no failure by itself: scripts fill
masks with it. So NaN from arguments that are infinite only by such a constant has its origin where
the NaN appears, and NaN from other infinite arguments has it where they became infinite.

Origins belong to memory, not to tensors: views, and gradients that autograd moves, share it.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import weakref
from collections.abc import Iterable
from enum import Enum
from itertools import chain
from types import CodeType, FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.nan_search.values import (
    Range,
    describe_tensor,
    find_range,
    find_stored,
    has_infinite_constant,
    has_nan,
    is_finite,
    is_mask,
    short_name,
)
from stepscope.capture.frameworks.pytorch.tensors.selection import strip_wrappers

MAX_INPUTS = 8
"""Arguments that an origin describes."""
MAX_LINES = 200_000
"""Operators of a step whose lines are remembered for the backward pass."""
_FOLLOWER_FIELDS = ("operator", "phase", "autograd_node", "module", "file", "line")
_NO_ORIGIN: dict[str, Any] = {
    "operator": "", "autograd_node": None, "module": "", "module_class": "", "parameter": None,
    "file": "", "line": 0, "function": "", "caller_file": "", "caller_line": 0, "inputs": [],
    "follower": None,
}  # fmt: skip
"""Fields of an origin of which nothing is known."""
_current_node = PYTORCH.find("autograd_node")
_next_sequence = PYTORCH.find("sequence_number")


class Origin:
    """Operator, or tensor from outside, with the first non-finite numbers.

    Args:
        number: counts origins in the order of time.
        fields: description, as in `stepscope.schema.NanOriginFact`.
        is_deliberate: a constant such as that of a mask.
    """

    __slots__ = ("fields", "is_deliberate", "number")

    def __init__(self, number: int, fields: dict[str, Any], *, is_deliberate: bool = False) -> None:
        self.number = number
        self.fields = {**_NO_ORIGIN, **fields}
        self.is_deliberate = is_deliberate


class Origins:
    """Origins of the non-finite numbers of a process."""

    def __init__(self) -> None:
        self._by_storage: dict[int, tuple[StorageWeakRef, Origin]] = {}
        self._names = ModelNames()
        self._count = 0
        self._sites: dict[int, CallSite] = {}
        self._earlier_sites: dict[int, CallSite] = {}
        """By the sequence number of the autograd node: of this step, and of the one before."""
        self._sent: Origin | None = None
        """Origin of what this process has sent to others in this step."""
        self._has_called_model = False
        self.is_stepping = False
        """An optimizer step is open."""

    def start_step(self) -> None:
        """Forget lines of the step before the last one, and memory that is freed."""
        self._earlier_sites, self._sites = self._sites, {}
        self._sent = None
        self._has_called_model = False
        self._by_storage = {
            key: entry for key, entry in self._by_storage.items() if not entry[0].expired()
        }

    def note_site(self) -> None:
        """Remember the line that creates an autograd node: its backward pass has none."""
        sequence = _next_sequence() - 1
        if sequence not in self._sites and len(self._sites) < MAX_LINES:
            frame = sys._getframe(2)
            site = self._sites[sequence] = CallSite(frame)
            self._names.add(site, frame)
            self._has_called_model |= site.phase == "forward"

    def forget(self, tensor: torch.Tensor) -> None:
        """Forget the origin of memory that a finite tensor fills."""
        stored = find_stored(tensor) if self._by_storage else None
        if stored is None:
            return
        storage = stored.untyped_storage()
        if storage._cdata in self._by_storage and stored.nbytes == storage.nbytes():
            del self._by_storage[storage._cdata]

    def find(self, tensor: torch.Tensor) -> Origin | None:
        """Return the known origin of a tensor's non-finite numbers."""
        stored = find_stored(tensor)
        if stored is None:
            return None
        entry = self._by_storage.get(stored.untyped_storage()._cdata)
        return None if entry is None else entry[1]

    def trace(
        self,
        operator: Any,
        result: torch.Tensor,
        result_range: Range,
        inputs: Iterable[torch.Tensor],
        *,
        old_ranges: dict[int, Range],
        constants: tuple[Any, Any],
    ) -> None:
        """Assign an origin to a result that is not finite.

        Args:
            operator: the operator.
            result: its result, or an argument that it has written.
            result_range: range of the result.
            inputs: arguments from which the result is computed.
            old_ranges: ranges of arguments before they were written, by identity of the tensor.
            constants: all positional and keyword arguments.
        """
        inputs = list(inputs)
        causes: list[tuple[Origin, bool]] = []
        for tensor in inputs:
            if tensor is result and id(tensor) not in old_ranges:
                continue  # only written
            values = old_ranges.get(id(tensor)) or find_range(tensor)
            if values is not None and not is_finite(values):
                causes.append(
                    (self.find(tensor) or self._find_source(tensor, values), has_nan(values))
                )
        origin = self._choose(causes, is_nan=has_nan(result_range))
        if origin is None:
            is_deliberate = not has_nan(result_range) and has_infinite_constant(*constants)
            fields = self._describe_operator(operator, result, inputs, old_ranges)
            origin = self._new(fields, is_deliberate=is_deliberate)
            infinite = [cause for cause in causes if not cause[0].is_deliberate]
            earlier = self._choose(infinite, is_nan=False)
            if earlier is not None:  # what an infinite number leads to belongs to its origin
                follower = {key: fields[key] for key in _FOLLOWER_FIELDS}
                follower = earlier.fields["follower"] or follower
                origin = Origin(earlier.number, {**earlier.fields, "follower": follower})
        self._remember(result, origin)

    def note_exchange(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember the origin of what this process sends to others in a collective."""
        for tensor in tensors:
            self._sent = self._sent or self.find(tensor)

    @staticmethod
    def _choose(causes: list[tuple[Origin, bool]], *, is_nan: bool) -> Origin | None:
        """Return the earliest origin of the kind of the result; a mask if there is no other."""
        candidates = [origin for origin, cause_is_nan in causes if cause_is_nan or not is_nan]
        return min(
            candidates, key=lambda origin: (origin.is_deliberate, origin.number), default=None
        )

    def name_parameter(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter; None if no model that was called has it."""
        stored = find_stored(parameter)
        return None if stored is None else self._names.name_parameter(stored)

    def find_or_describe(self, tensor: torch.Tensor, *, phase: str) -> Origin:
        """Return the origin of a tensor that no operator has been seen to produce."""
        origin = self.find(tensor) or self._sent
        if origin is None:
            origin = self._new({"phase": phase, **self._describe_result(tensor)})
        return origin

    def _find_source(self, tensor: torch.Tensor, values: Range) -> Origin:
        """Describe a non-finite tensor from outside of the operators that were seen."""
        frame = sys._getframe(2)
        site = CallSite(frame)
        self._names.add(site, frame)
        is_deliberate = not has_nan(values) and is_mask(tensor)
        parameter = self.name_parameter(tensor)
        is_parameter = parameter is not None or (tensor.requires_grad and tensor.is_leaf)
        phase = "parameters" if is_parameter else "input"
        if site.phase == "backward" and not is_parameter:
            if self._sent is not None:
                return self._sent
            phase = unseen_phase()
        fields = {
            "phase": phase,
            "parameter": parameter,
            **self._describe_site(site),
            **self._describe_result(tensor),
        }
        origin = self._new(fields, is_deliberate=is_deliberate)
        self._remember(tensor, origin)
        return origin

    def _describe_operator(
        self,
        operator: Any,
        result: torch.Tensor,
        inputs: list[torch.Tensor],
        old_ranges: dict[int, Range],
    ) -> dict[str, Any]:
        frame = sys._getframe(2)
        site = CallSite(frame)
        self._names.add(site, frame)
        node = _current_node()
        forward = None
        if node is not None and site.phase in {"", "backward"}:
            site.phase = "backward"
            sequence = node._sequence_nr()
            forward = self._sites.get(sequence) or self._earlier_sites.get(sequence)
        fields = {
            "phase": self._phase(site),
            "operator": short_name(operator),
            "autograd_node": None if node is None or site.phase != "backward" else node.name(),
            **self._describe_site(site if forward is None else _merge(site, forward)),
            **self._describe_result(result),
        }
        fields["inputs"] = [
            describe_tensor(tensor, old_ranges.get(id(tensor)))
            for tensor in inputs[:MAX_INPUTS]
            if tensor is not result or id(tensor) in old_ranges
        ]
        return fields

    def _phase(self, site: CallSite) -> str:
        if site.phase:
            return site.phase
        if self.is_stepping and not torch.is_grad_enabled():
            return "optimizer"
        return "loss" if self._has_called_model else "forward"

    def _describe_site(self, site: CallSite) -> dict[str, Any]:
        file, line, function = site.line or ("", 0, "")
        fields: dict[str, Any] = {"file": file, "line": line, "function": function, "module": ""}
        if site.caller is not None:
            fields["caller_file"], fields["caller_line"], _ = site.caller
        module = None if site.module is None else site.module()
        if module is not None:
            fields["module"] = self._names.name_module(module)
            fields["module_class"] = type(module).__name__
        return fields

    @staticmethod
    def _describe_result(tensor: torch.Tensor) -> dict[str, Any]:
        return {"step": progress.finished_step_count, "result": describe_tensor(tensor)}

    def _new(self, fields: dict[str, Any], *, is_deliberate: bool = False) -> Origin:
        self._count += 1
        return Origin(self._count, fields, is_deliberate=is_deliberate)

    def _remember(self, tensor: torch.Tensor, origin: Origin) -> None:
        stored = find_stored(tensor)
        if stored is not None:
            storage = stored.untyped_storage()
            self._by_storage[storage._cdata] = StorageWeakRef(storage), origin


def unseen_phase() -> str:
    """Return the phase of gradients that no operator of this process has produced."""
    distributed = torch.distributed
    is_exchanged = distributed.is_available() and distributed.is_initialized()
    return "exchange" if is_exchanged else "unknown"


def _merge(site: CallSite, forward: CallSite) -> CallSite:
    """Return the position of a backward operator: a line of its own if the script defines it, else
    that of the forward pass."""
    if site.line is None or not site.line[0]:
        site.line, site.caller = forward.line, forward.caller
    site.module = site.module or forward.module
    return site


MAX_MODELS = 16
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OPTIMIZERS = os.path.join(_TORCH, "optim", "")
_DATA = os.path.join(_TORCH, "utils", "data", "")
_STANDARD_LIBRARY = os.path.join(sysconfig.get_paths()["stdlib"], "")
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_OWN = os.path.dirname(sys.modules["stepscope"].__file__ or "") + os.sep
_LOSS_CLASS = torch.nn.modules.loss._Loss


class _Kind(Enum):
    SCRIPT = 1
    PACKAGE = 2
    """A package, such as `transformers`."""
    MODULE_CALL = 3
    ENGINE = 4
    OPTIMIZER = 5
    DATA = 6
    OTHER = 7


@functools.cache
def _kind_of(code: CodeType) -> _Kind:
    path, name = code.co_filename, code.co_name
    if path.startswith(_TORCH):
        if name == "_call_impl":
            return _Kind.MODULE_CALL
        if name == "_engine_run_backward":
            return _Kind.ENGINE
        if path.startswith(_OPTIMIZERS):
            return _Kind.OPTIMIZER
        return _Kind.DATA if path.startswith(_DATA) else _Kind.OTHER
    if path.startswith((_OWN, "<frozen")):
        return _Kind.OTHER
    if _PACKAGES in path:
        return _Kind.PACKAGE
    return _Kind.OTHER if path.startswith(_STANDARD_LIBRARY) else _Kind.SCRIPT


class CallSite:
    """Position of an operator in the script.

    Attributes:
        line: file, line and function of the code that calls torch.
        caller: those of the script, if a package calls torch.
        module: innermost module whose forward pass it is.
        phase: `input`, `forward`, `loss`, `backward` or `optimizer`; empty outside of modules.
    """

    __slots__ = ("caller", "line", "module", "phase")

    def __init__(self, frame: FrameType | None) -> None:
        self.line: tuple[str, int, str] | None = None
        self.caller: tuple[str, int, str] | None = None
        self.module: weakref.ref[torch.nn.Module] | None = None
        self.phase = ""
        while frame is not None:
            kind = _kind_of(frame.f_code)
            if kind is not _Kind.OTHER:
                self._add(kind, frame)
                if self._is_complete():
                    break
            frame = frame.f_back
        if self.caller == self.line:
            self.caller = None

    def _is_complete(self) -> bool:
        return bool(self.phase) and self.caller is not None

    def _add(self, kind: _Kind, frame: FrameType) -> None:
        if kind is _Kind.SCRIPT or kind is _Kind.PACKAGE:
            line = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            if self.line is None:
                self.line = line
            if self.caller is None and kind is _Kind.SCRIPT:
                self.caller = line
        elif self.phase:
            return
        elif kind is _Kind.MODULE_CALL:
            module = frame.f_locals["self"]
            self.module = weakref.ref(module)
            self.phase = "loss" if isinstance(module, _LOSS_CLASS) else "forward"
        elif kind is _Kind.ENGINE:
            self.phase = "backward"
            # The line of a backward function that the script defines is on the stack before.
            self.caller = self.line = self.line or _NO_LINE
        else:
            self.phase = "optimizer" if kind is _Kind.OPTIMIZER else "input"


_NO_LINE = ("", 0, "")


def find_model(frame: FrameType | None) -> torch.nn.Module | None:
    """Return the outermost module that is being called."""
    model = None
    while frame is not None:
        if _kind_of(frame.f_code) is _Kind.MODULE_CALL:
            model = frame.f_locals["self"]
        frame = frame.f_back
    return model


class ModelNames:
    """Names of the modules, parameters and buffers of the models that a script calls."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}

    def add(self, site: CallSite, frame: FrameType) -> None:
        """Add the model that contains the module of an operator."""
        if site.module is None or len(self._models) >= MAX_MODELS:
            return
        reference = self._modules.get(id(site.module()))
        if reference is not None and reference() is site.module():
            return
        model = find_model(frame)
        if model is not None and all(reference() is not model for reference in self._models):
            self._models.append(weakref.ref(model))
            for module in model.modules():
                self._modules[id(module)] = weakref.ref(module)

    def name_module(self, module: torch.nn.Module) -> str:
        """Return the path of a module in its model; empty for the model itself."""
        for model in self._alive():
            for path, part in model.named_modules():
                if part is module:
                    return _strip(path, model)
        return ""

    def name_parameter(self, tensor: torch.Tensor) -> str | None:
        """Return the name of the parameter or buffer whose memory a tensor shares; None if there is
        none."""
        storage = tensor.untyped_storage()._cdata
        for model in self._alive():
            for path, parameter in chain(model.named_parameters(), model.named_buffers()):
                if _storage(parameter) == storage:
                    return _strip(path, model)
        return None

    def _alive(self) -> list[torch.nn.Module]:
        return [model for reference in self._models if (model := reference()) is not None]


def _storage(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse, or a parameter without a shape yet
        return None


def _strip(path: str, model: torch.nn.Module) -> str:
    return strip_wrappers(path, type(model).__name__)
