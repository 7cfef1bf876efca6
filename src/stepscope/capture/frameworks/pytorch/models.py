"""Description of a job's models and their inputs, used to check that two runs do the same work.

Each module of an outermost call is described once: number, shapes and element types of its
parameters, and autocast. Input shapes are recorded during its first calls, because in some jobs
they change from batch to batch.

Only metadata of tensors is read, but for padding, for which a model computes and learns nothing:
an attention mask says where it is, or else the index of it that the model's embeddings have
(`padding_idx`). A mask is read where a loader makes the batch, or as an input of a model, if it is
in host memory there: reading one on a device would wait for the device. The first batches of a
process are read, and then ever fewer.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import weakref
from collections import UserDict
from collections.abc import Iterator
from typing import Any

import torch

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.pytorch.patching import without_functions
from stepscope.capture.guard import Probe

MAX_MODELS = 8
"""Limit for scripts that create a module in every step."""
MAX_INSPECTED_CALLS = 5
MAX_INPUTS = 16
MAX_TYPES = 200
MAX_DEPTH = 2
"""Limit on the depth of nested lists and dictionaries of inputs."""
DIGEST_LENGTH = 16
MASK_SUFFIX = "attention_mask"
"""End of the names of masks, as tokenizers of Hugging Face call them: 0 is padding."""
FIRST_MASKS = 8
"""Masks of all of the first batches are read, then of those whose number is a power of two."""
MAX_MASK_SIZE = 1 << 20
"""Reading a larger mask would take milliseconds."""

_PLAIN_TYPES = {torch.Tensor, torch.nn.Parameter}
"""Subclasses may have symbolic shapes, and reading those may record a constraint."""
_MASK_TYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_TOKEN_TYPES = {torch.int32, torch.int64}
_probe = Probe("model descriptions")
_mask_probe = Probe("masks of batches")
_is_transformed: Any = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None
)
"""Tells tensors inside of vmap and grad of torch.func, which have no memory; None before 2.0."""


COUNTING = PYTORCH.find_all("function_modes", "tracing_state", "numel")
_is_mode_active, _tracing_state, _numel = COUNTING or (None, None, None)


class _ModelState:
    """Number of one model, and the inputs recorded so far."""

    __slots__ = ("calls_left", "inputs", "number")

    def __init__(self) -> None:
        self.number = 0
        self.calls_left = 0  # until the model has its number
        self.inputs: list[list[dict[str, Any]]] = []


_states: weakref.WeakKeyDictionary[torch.nn.Module, _ModelState] = weakref.WeakKeyDictionary()
described: dict[int, weakref.ref[torch.nn.Module]] = {}
"""Models that need no more calls of `_describe`, by identity: a quicker look-up than `_states`."""
_numbers = itertools.count(1)
"""Numbers of models. Taking the next one is atomic; threads may call models at the same time."""
_is_full = False
"""True once the last number is given away."""
_batch_counts: dict[str, int] = {}
"""Batches so far, by class of the dataset."""


def describe(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """Record new facts about a model after one of its calls. Never raises."""
    reference = described.get(id(module))
    if reference is None or reference() is not module:
        _describe(module, args, kwargs)


def has_calls() -> bool:
    """Return True if a model has been called."""
    return bool(described)


@_probe.protect
def _describe(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    state = _states.get(module)
    is_done = _is_full if state is None else not state.calls_left
    # A tracer would record access to a shape as part of the model, and a torch function mode of the
    # script would intercept it.
    if not is_done and _tracing_state is not None and _tracing_state() is None:
        with without_functions():
            _record(module, state, args, kwargs)


def count_elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Count the elements of the first tensor of a call; 0 without one among the arguments.

    A tracer would record the access as part of the model: there it is 0 as well.
    """
    if _numel is None:
        return 0
    for value in args or kwargs.values():
        if type(value) is torch.Tensor:
            if _tracing_state() is not None:
                return 0
            if not _is_mode_active():
                return int(_numel(value))
            with without_functions():  # a mode of the script would intercept it
                return int(_numel(value))
    return 0


def is_in_eval_mode(module: torch.nn.Module) -> bool:
    """Return True for a module in evaluation mode; False where the class defines `training`."""
    if type(module).__name__ == "OptimizedModule":  # of torch.compile
        inner = module._modules.get("_orig_mod")  # may be false: its class may have `__len__`
        module = module if inner is None else inner
    return module.__dict__.get("training") is False


def _record(module: torch.nn.Module, state: _ModelState | None, args: Any, kwargs: Any) -> None:
    if state is None:
        state = _number(module)
        if state is None:
            return
        _probe.fact("model", model=state.number, **_parameters(module))
    state.calls_left -= 1
    if not state.calls_left:
        described[id(module)] = weakref.ref(module)
    inputs = [
        {"name": name, "shape": [int(n) for n in tensor.shape], "dtype": _dtype(tensor.dtype)}
        for name, tensor in itertools.islice(
            find_tensors([*enumerate(args), *kwargs.items()], "", MAX_DEPTH), MAX_INPUTS
        )
    ]
    if inputs not in state.inputs:
        state.inputs.append(inputs)
        _probe.fact("model_inputs", model=state.number, inputs=inputs)
    if torch.is_grad_enabled():
        note_padding([*args, kwargs], padding_index=_find_padding_index(module))


@_mask_probe.protect
def note_padding(batch: Any, dataset: str = "", padding_index: int | None = None) -> None:
    """Record how much of a batch is padding, if it has an attention mask. Never raises.

    Args:
        batch: nested lists and dictionaries of tensors.
        dataset: class of the dataset; empty for the inputs of a model.
        padding_index: token that is padding where no mask says it: rows of numbers that have it at
            one end only are sequences. None if there is no such token.
    """
    count = _batch_counts[dataset] = _batch_counts.get(dataset, 0) + 1
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or (count > FIRST_MASKS and count & (count - 1)):
        return
    if isinstance(batch, UserDict):
        batch = batch.__dict__.get("data")
    with without_functions():
        tensors = [*find_tensors([("", batch)], "", MAX_DEPTH + 1)]
        masks = [(path, mask) for path, mask in tensors if path.endswith(MASK_SUFFIX)]
        for path, mask in masks:
            if _is_readable(mask):
                used = _copy(mask, numpy) != 0
                _note_mask(path.rpartition(".")[2], used, numpy, dataset, count)
        if masks or padding_index is None:
            return
        for path, tokens in tensors:
            if tokens.dtype in _TOKEN_TYPES and _is_readable(tokens):
                used = _copy(tokens, numpy) != padding_index
                if (used[:, 1:] != used[:, :-1]).sum(axis=1).max(initial=0) <= 1:
                    _note_mask(path.rpartition(".")[2], used, numpy, dataset, count)
                return


def _find_padding_index(module: torch.nn.Module) -> int | None:
    """Find the token that all embeddings of a model take for padding; None without one."""
    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.Embedding)]
    indices = {layer.padding_idx for layer in layers if layer.padding_idx is not None}
    return int(indices.pop()) if len(indices) == 1 else None


def _is_readable(mask: torch.Tensor) -> bool:
    """Return True for a mask by rows in host memory, and for none of a tracer or of vmap."""
    if _tracing_state is not None and _tracing_state() is not None:
        return False
    if _is_transformed is not None and _is_transformed(mask):
        return False
    is_plain = mask.dim() == 2 and mask.dtype in _MASK_TYPES and mask.device.type == "cpu"
    return is_plain and 0 < mask.numel() <= MAX_MASK_SIZE and mask.is_contiguous()


def _copy(tensor: torch.Tensor, numpy: Any) -> Any:
    # A copy of the bytes: `tensor.numpy()` would keep the script from resizing the tensor.
    import ctypes

    size = tensor.element_size()
    data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * size)
    return numpy.frombuffer(data, dtype=f"u{size}").reshape(tuple(tensor.shape))


def _note_mask(name: str, used: Any, numpy: Any, dataset: str, batch: int) -> None:
    _mask_probe.fact(
        "padding",
        mask=name,
        dataset=dataset,
        batch=batch,
        rows=used.shape[0],
        length=used.shape[1],
        used_length=int(used.any(axis=0).sum()),
        used_count=int(numpy.count_nonzero(used)),
    )


def _number(module: torch.nn.Module) -> _ModelState | None:
    """Give a model its number; None beyond the limit, or if another thread is doing so."""
    global _is_full
    state = _ModelState()
    if _states.setdefault(module, state) is not state:
        return None
    state.number, state.calls_left = next(_numbers), MAX_INSPECTED_CALLS
    _is_full = state.number >= MAX_MODELS
    if state.number > MAX_MODELS:
        del _states[module]
        return None
    return state


def _parameters(module: torch.nn.Module) -> dict[str, Any]:
    parameters = list(module.parameters())
    shapes = [f"{tuple(p.shape)} {_dtype(p.dtype)}" for p in parameters]
    return {
        "name": type(module).__name__,
        "parameter_count": sum(p.numel() for p in parameters),
        "tensor_count": len(parameters),
        "embedding_parameter_count": _count_dense_embedding_parameters(module),
        "shapes_digest": hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:DIGEST_LENGTH],
        "dtypes": sorted({_dtype(p.dtype) for p in parameters}),
        "autocast": _autocast(parameters[0].device.type if parameters else "cpu"),
        "module_types": sorted({type(layer).__name__ for layer in module.modules()})[:MAX_TYPES],
    }


def _count_dense_embedding_parameters(module: torch.nn.Module) -> int:
    """Count the parameters of lookup tables whose gradients are as large as the table.

    A table shared with a layer of another kind is not counted: that layer uses all of it.
    """
    tables, non_tables = {}, set()
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and not layer.sparse:
                tables[id(parameter)] = parameter.numel()
            else:
                non_tables.add(id(parameter))
    return sum(count for table, count in tables.items() if table not in non_tables)


def _autocast(device: str) -> str | None:
    """Return the element type of autocast, None if it is off."""
    if device not in {"cpu", "cuda"} or not hasattr(torch, "get_autocast_dtype"):  # torch < 2.4
        return None
    if not torch.is_autocast_enabled(device):
        return None
    return _dtype(torch.get_autocast_dtype(device))


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def find_tensors(
    items: list[tuple[Any, Any]], prefix: str, depth: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield path and tensor of each tensor in nested lists and dictionaries."""
    for name, value in items:
        path = f"{prefix}{name}"
        if type(value) in _PLAIN_TYPES:
            yield path, value
        elif depth and type(value) in {list, tuple}:
            yield from find_tensors([*enumerate(value[:MAX_INPUTS])], f"{path}.", depth - 1)
        elif depth and type(value) is dict:
            yield from find_tensors([*value.items()][:MAX_INPUTS], f"{path}.", depth - 1)
