"""What the models of a job are, so that two runs can be told to do the same work.

Each module that is called outermost is described once: number, shapes and element types of its
parameters, and autocast. Shapes of its inputs are noted during its first calls, for in some jobs
they change from batch to batch. Only what tensors say of themselves is read, never their values.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from stepscope.capture.guard import Probe

MOST_MODELS = 8
"""A script that makes a module for every step is not described for ever."""
CALLS_LOOKED_AT = 5
MOST_INPUTS = 16
DEEPEST = 2
"""How far into lists and dictionaries of inputs is looked."""
DIGEST_LENGTH = 16

_PLAIN = {torch.Tensor, torch.nn.Parameter}
"""Subclasses may have shapes of symbols, which notice who asks for them."""
_probe = Probe("the description of models")


class _Described:
    """What was said of one model."""

    __slots__ = ("calls_left", "number", "said")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls_left = CALLS_LOOKED_AT
        self.said: list[list[dict[str, Any]]] = []


_described: weakref.WeakKeyDictionary[torch.nn.Module, _Described] = weakref.WeakKeyDictionary()
_models_left = MOST_MODELS


def _describe(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Say what is new of a model after one of its calls."""
    described = _described.get(module)
    news = _models_left if described is None else described.calls_left
    # A tracer would take a question for a shape as part of the model, and a mode of the script's
    # own would see it.
    if news and torch._C._get_tracing_state() is None:
        with torch._C.DisableTorchFunction():
            _say(module, described, args, kwargs)


def _say(module: torch.nn.Module, described: _Described | None, args: Any, kwargs: Any) -> None:
    global _models_left
    if described is None:
        _models_left -= 1
        described = _described[module] = _Described(MOST_MODELS - _models_left)
        _probe.fact("model", model=described.number, **_parameters(module))
    described.calls_left -= 1
    inputs = [
        {
            "name": name,
            "shape": [int(n) for n in tensor.shape],
            "dtype": _dtype(tensor.dtype),
        }
        for name, tensor in _first(_tensors([*enumerate(args), *kwargs.items()], "", DEEPEST))
    ]
    if inputs not in described.said:
        described.said.append(inputs)
        _probe.fact("model_inputs", model=described.number, inputs=inputs)


describe = _probe.protect(_describe)


def _parameters(module: torch.nn.Module) -> dict[str, Any]:
    parameters = list(module.parameters())
    shapes = [f"{tuple(p.shape)} {_dtype(p.dtype)}" for p in parameters]
    return {
        "name": type(module).__name__,
        "parameter_count": sum(p.numel() for p in parameters),
        "tensor_count": len(parameters),
        "embedding_parameter_count": _in_dense_embeddings(module),
        "shapes_digest": hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:DIGEST_LENGTH],
        "dtypes": sorted({_dtype(p.dtype) for p in parameters}),
        "autocast": _autocast(parameters[0].device.type if parameters else "cpu"),
    }


def _in_dense_embeddings(module: torch.nn.Module) -> int:
    """Parameters of lookup tables whose gradients are of the size of the table. A table that a
    layer of another kind shares is none: that layer uses all of it."""
    tables, others = {}, set()
    for each in module.modules():
        for parameter in each.parameters(recurse=False):
            if isinstance(each, torch.nn.Embedding | torch.nn.EmbeddingBag) and not each.sparse:
                tables[id(parameter)] = parameter.numel()
            else:
                others.add(id(parameter))
    return sum(count for table, count in tables.items() if table not in others)


def _autocast(device: str) -> str | None:
    """The element type that autocast computes in, None where it is off."""
    if device not in {"cpu", "cuda"} or not hasattr(torch, "get_autocast_dtype"):  # torch < 2.4
        return None
    if not torch.is_autocast_enabled(device):
        return None
    return _dtype(torch.get_autocast_dtype(device))


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tensors(
    named: list[tuple[Any, Any]], above: str, depth: int
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in named:
        path = f"{above}{name}"
        if type(value) in _PLAIN:
            yield path, value
        elif depth and type(value) in {list, tuple}:
            yield from _tensors([*enumerate(value[:MOST_INPUTS])], f"{path}.", depth - 1)
        elif depth and type(value) is dict:
            yield from _tensors([*value.items()][:MOST_INPUTS], f"{path}.", depth - 1)


def _first(found: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    for _, each in zip(range(MOST_INPUTS), found, strict=False):
        yield each
