"""Line of the script, module and phase of an operator, from the stack of Python."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import weakref
from enum import Enum
from itertools import chain
from types import CodeType, FrameType
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.tensors.naming import strip_wrappers

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
