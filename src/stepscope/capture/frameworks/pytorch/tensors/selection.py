"""Selection of tensors by name and of ranks, as the plan asks for; names of parameters."""

from __future__ import annotations

import heapq
import re
import weakref
from collections.abc import Iterable
from itertools import chain, count
from typing import NamedTuple

import torch

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.settings import find_rank
from stepscope.spool import TensorPlan

MAX_SEARCHED_NAMES = 5000
"""Limit of the names among which the nearest ones are looked for."""
MAX_COMPARED_NAMES = 50
"""Of these, those that are compared character by character: they have the most pairs of
neighbouring characters in common with the pattern."""
NEAREST_COUNT = 3
_SPECIAL_CHARACTERS = re.compile(r"[\\^$*+?()\[\]{}|]")


class NamePatterns:
    """Regular expressions for whole names, and the names that they were compared with."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._matches: dict[str, bool] = {}
        self._unmatched = {pattern.pattern: None for pattern in self._patterns}

    def match(self, name: str) -> bool:
        """Return True if a pattern matches a name."""
        if not self._patterns:
            return False
        result = self._matches.get(name)
        if result is None:
            matching = [pattern for pattern in self._patterns if pattern.fullmatch(name)]
            for pattern in matching:
                self._unmatched.pop(pattern.pattern, None)
            result = self._matches[name] = bool(matching)
        return result

    def describe_unmatched(self, step_count: int) -> list[str]:
        """Describe each pattern that no name has matched, with the nearest names.

        Args:
            step_count: number of recorded steps.
        """
        if not self._matches:  # nothing was called or trained in this process
            return []
        steps = "1 recorded step" if step_count == 1 else f"{step_count} recorded steps"
        return [
            f"The pattern {pattern!r} has matched no tensor in {steps}; the nearest names "
            f"are {', '.join(self._find_nearest(pattern))}"
            for pattern in self._unmatched
        ]

    def _find_nearest(self, pattern: str) -> list[str]:
        from difflib import get_close_matches

        text = _SPECIAL_CHARACTERS.sub("", pattern.replace(".*", ""))
        pairs = _list_pairs(text)

        def similarity(name: str) -> float:
            name_pairs = _list_pairs(name)
            return len(pairs & name_pairs) / max(1, len(pairs) + len(name_pairs))

        # The exact comparison takes 50 times as long, and the training waits.
        names = list(self._matches)[:MAX_SEARCHED_NAMES]
        names = heapq.nlargest(MAX_COMPARED_NAMES, names, key=similarity)
        return get_close_matches(text, names, NEAREST_COUNT, cutoff=0.0)


def _list_pairs(text: str) -> set[str]:
    """Return the pairs of neighbouring characters."""
    return {text[start : start + 2] for start in range(len(text) - 1)}


def is_recorded_rank(plan: TensorPlan) -> bool:
    """Return True if the plan asks for the rank of this process.

    The script may set its rank, or start `torch.distributed`, after the import of torch.
    """
    return plan.ranks is None or plan.records_rank(find_rank())


MAX_MODELS = 4096
"""Limit for scripts that create a module in every step, and keep all."""
_WRAPPER_CLASSES = {
    "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
}  # fmt: skip
_WRAPPER_PARTS = {"module", "_orig_mod"}
"""Attributes in which these classes hold the wrapped module."""
_SHARDED_BASE = "FSDPModule"
"""Base class that `fully_shard` adds to the class of a module, before the original one."""
_TRANSPARENT_PARTS = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}
"""Attributes that only wrappers have."""


class _Owner(NamedTuple):
    """Parameter that has a name."""

    parameter: weakref.ref[torch.Tensor]
    model: weakref.ref[torch.nn.Module] | None
    """Its model, if it has one."""


class ParameterNames:
    """Names by parameter, of the modules that the script calls or registers."""

    def __init__(self) -> None:
        self._models: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._names: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._placeholders: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._owners: dict[str, _Owner] = {}
        self._next_numbers: dict[str, int] = {}
        """By name of parameters without a model, the number from which one may be free."""

    def add(self, module: torch.nn.Module) -> None:
        """Add a module that a script calls."""
        reference = self._models.get(id(module))
        if reference is not None and reference() is module:
            return
        if len(self._models) >= MAX_MODELS:
            alive = {key: model for key, model in self._models.items() if model() is not None}
            self._models = alive
        if len(self._models) < MAX_MODELS:
            self._models[id(module)] = weakref.ref(module)
            self._add_parameters(module)

    def find(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter; one that no module has is named by its shape."""
        name = _look_up(self._names, parameter) or _look_up(self._placeholders, parameter)
        if name is None:
            self.add_new_parameters()
            name = _look_up(self._names, parameter)
        if name is None:  # its model may be called later
            shape = "x".join(str(int(n)) for n in parameter.shape) or "scalar"
            name = self._reserve_number(parameter, f"parameter_{shape}")
            self._placeholders[id(parameter)] = self._owners[name].parameter, name
        return name

    def find_known(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter of the registered modules; None for another one."""
        return _look_up(self._names, parameter)

    def add_new_parameters(self) -> None:
        """Name the parameters that the registered modules got since."""
        for reference in self._models.values():
            model = reference()
            if model is not None:
                self._add_parameters(model)

    def _add_parameters(self, model: torch.nn.Module) -> None:
        class_name = find_class_name(model)
        present = {id(parameter) for parameter in model.parameters()}
        for path, parameter in model.named_parameters():
            if _look_up(self._names, parameter) is None:
                name = strip_wrappers(path, class_name)
                name = self._reserve(parameter, name, present, model)
                self._names[id(parameter)] = self._owners[name].parameter, name

    def _reserve(
        self, parameter: torch.Tensor, name: str, present: set[int], model: torch.nn.Module
    ) -> str:
        """Give a parameter a name that no other one has: those of a second model begin with its
        class. A model that replaces one that is freed has the names of the old one, and a parameter
        that replaces one of its model the name of that: FSDP2 does so around each forward pass.

        Args:
            present: identities of the parameters that the model has now.
        """
        with_class = f"{find_class_name(model)}.{name}"
        numbered = (f"{with_class}#{number}" for number in count(2))
        candidates = chain((name, with_class), numbered)
        free = next(text for text in candidates if self._is_free(text, present, model))
        self._owners[free] = _Owner(self._refer(parameter, free), weakref.ref(model))
        return free

    def _reserve_number(self, parameter: torch.Tensor, name: str) -> str:
        """Give a parameter without a model a name that no other one has.

        A script may have thousands of one shape: the search goes on where the last one ended.
        """
        number = self._next_numbers.get(name, 1)
        while (free := f"{name}#{number}" if number > 1 else name) in self._owners:
            number += 1
        self._next_numbers[name] = number + 1
        self._owners[free] = _Owner(self._refer(parameter, free, name, number), None)
        return free

    def _refer(
        self, parameter: torch.Tensor, name: str, numbered: str = "", number: int = 0
    ) -> weakref.ref[torch.Tensor]:
        """Refer to a parameter; when it is freed, all about it is forgotten."""
        identity = id(parameter)

        def forget(reference: weakref.ref[torch.Tensor]) -> None:
            for names in (self._names, self._placeholders):
                if names.get(identity, (None,))[0] is reference:
                    del names[identity]
            owner = self._owners.get(name)
            if owner is not None and owner.parameter is reference:
                del self._owners[name]
                if numbered:
                    self._next_numbers[numbered] = min(self._next_numbers[numbered], number)

        return weakref.ref(parameter, forget)

    def _is_free(self, name: str, present: set[int], model: torch.nn.Module) -> bool:
        owner = self._owners.get(name)
        old = None if owner is None else owner.parameter()
        if owner is None or old is None:
            return True
        is_own = owner.model is not None and owner.model() is model
        return is_own and id(old) not in present


def _look_up(
    names: dict[int, tuple[weakref.ref[torch.Tensor], str]], parameter: torch.Tensor
) -> str | None:
    reference, name = names.get(id(parameter), (None, ""))
    return name if reference is not None and reference() is parameter else None


def is_bias(name: str) -> bool:
    """Return True for the name of a bias, also one that is numbered."""
    return name.rpartition(".")[2].partition("#")[0] == "bias"


def holds(module: torch.nn.Module, model: torch.nn.Module) -> bool:
    """Return True for a wrapper such as DDP whose calls are those of the model."""
    parts = (part for name, part in module._modules.items() if name in _WRAPPER_PARTS)
    return type(module).__name__ in _WRAPPER_CLASSES and any(part is model for part in parts)


def find_class_name(model: torch.nn.Module) -> str:
    """Return the name of a model's class; FSDP2 replaces the class by one of its own."""
    model_class = type(model)
    for base in model_class.__bases__:
        if base.__name__ == _SHARDED_BASE and len(model_class.__bases__) > 1:
            return model_class.__bases__[-1].__name__
    return model_class.__name__


def strip_wrappers(path: str, class_name: str) -> str:
    """Return the name of a parameter or module in the model that wrappers hold.

    Args:
        path: its name in the outermost module.
        class_name: class of that module.
    """
    parts = path.split(".")
    while class_name in _WRAPPER_CLASSES and len(parts) > 1 and parts[0] in _WRAPPER_PARTS:
        del parts[0]
    return ".".join(part for part in parts if part not in _TRANSPARENT_PARTS)


_graph_task = PYTORCH.find("graph_task") or (lambda: None)
_transform_level = PYTORCH.find("transform_level") or (lambda: None)
_tracing_state = PYTORCH.find("tracing_state") or (lambda: True)
_dispatch_modes = PYTORCH.find("dispatch_modes") or (lambda: 0)


def is_inside_transform() -> bool:
    """Return True under `torch.func`, where a tensor is no number."""
    return _transform_level() is not None


def is_plain_execution() -> bool:
    """Return True where operators compute numbers now, for the script itself.

    Not in the backward pass (checkpointing computes activations once more), under `torch.func`,
    tracers and dispatch modes (selective checkpointing counts the operators), and not while a CUDA
    graph is captured.
    """
    return (
        _graph_task() == -1
        and not is_inside_transform()
        and _tracing_state() is None
        and not _dispatch_modes()
        and not is_capturing()
    )
