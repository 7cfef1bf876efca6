"""Changes of DataLoaders, their samples, models, optimizers, and settings of torch."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import queue
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils import fetch as fetching

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.trial.measurement import Measurement
from stepscope.job_environment import DEBUG_VARIABLES

_WORKER_DEFAULTS: dict[str, Any] = {"prefetch_factor": None, "persistent_workers": False}
"""Arguments that a loader without workers does not accept otherwise."""
_changed: dict[str, Any] = {}


def set_argument(name: str, value: str, measurement: Measurement) -> None:
    """Create every DataLoader with one argument changed."""
    if not _changed:
        patch(DataLoader, "__init__", lambda original: _change_arguments(original, measurement))
    _changed[name] = ast.literal_eval(value)


def _change_arguments(original: Callable[..., Any], measurement: Measurement) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        before = dict(arguments)
        for name, value in _changed.items():
            if name != "batch_size" or _has_training_batches(before, measurement.plan.batch_size):
                arguments[name] = value
        if not arguments["num_workers"]:
            arguments.update(_WORKER_DEFAULTS, multiprocessing_context=None, timeout=0)
        for name, value in _changed.items():
            if arguments[name] == value:
                measurement.note_change(name, before[name], value)
        original(*bound.args, **bound.kwargs)

    return __init__


def _has_training_batches(arguments: dict[str, Any], batch_size: int | None) -> bool:
    """Return True if a loader makes its size batches, of the size of the training batches."""
    size = arguments["batch_size"] if arguments["batch_sampler"] is None else None
    return size is not None and batch_size in {None, size}


_caches: dict[int, tuple[Any, dict[Any, Any]]] = {}
"""Dataset and its samples by index, by the identity of the dataset; a forked worker inherits them.

The dataset is kept, so that no other one gets its identity.
"""


def cache_samples(measurement: Measurement) -> None:
    """Make the samples of the measured steps before training, and take them from memory.

    The steps then run as with a cache that is already full.
    """
    patch(DataLoader, "__iter__", lambda original: _fill_before(original, measurement))
    patch(fetching._MapDatasetFetcher, "__init__", _fetch_from_cache)


def _fill_before(original: Callable[..., Any], measurement: Measurement) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807
        plan = measurement.plan
        if id(self.dataset) not in _caches and _can_cache(self, plan.batch_size):
            ahead = 2 + self.num_workers * (self.prefetch_factor or 0)
            count = plan.warmup_step_count + plan.step_count + ahead
            with _restored_generators(self):
                _caches[id(self.dataset)] = self.dataset, _make_samples(self, count)
            measurement.note_change("cached_samples", "off", "memory")
        return original(self)

    return __iter__


def _can_cache(loader: Any, batch_size: int | None) -> bool:
    if isinstance(loader.dataset, IterableDataset) or not loader._auto_collation:
        return False
    if batch_size is not None and loader.batch_size not in {None, batch_size}:
        return False
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    return not loader.num_workers or context.get_start_method() == "fork"


def _make_samples(loader: Any, batch_count: int) -> dict[Any, Any]:
    """Make the samples of the next batches; an iterator draws its seed before the first index."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    batches = itertools.islice(iter(loader._index_sampler), batch_count)
    indices = list(dict.fromkeys(index for batch in batches for index in batch))
    return dict(zip(indices, _get_samples(loader.dataset, indices)))


def _get_samples(dataset: Any, indices: list[Any]) -> Iterable[Any]:
    if getattr(dataset, "__getitems__", None):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


@contextmanager
def _restored_generators(loader: Any) -> Iterator[None]:
    """Restore the generators of random numbers afterwards."""
    numpy: Any = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    owners = (loader, loader.sampler, loader.batch_sampler)
    generators = [g for owner in owners if (g := getattr(owner, "generator", None)) is not None]
    states = [generator.get_state() for generator in generators]
    yield
    if numpy is not None:
        numpy.random.set_state(numpy_state)
    random.setstate(python_state)
    torch.set_rng_state(torch_state)
    for generator, state in zip(generators, states):
        generator.set_state(state)


def _fetch_from_cache(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, dataset, *args, **kwargs)
        if id(dataset) in _caches:
            _, samples = _caches[id(dataset)]
            many = getattr(dataset, "__getitems__", None)
            self.dataset = (_CachedBatches if many else _Cached)(dataset, samples)

    return __init__


class _Cached:
    """Dataset whose samples are made once."""

    def __init__(self, dataset: Any, samples: dict[Any, Any]) -> None:
        self._dataset = dataset
        self._samples = samples

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._samples[index]
        except KeyError:
            sample = self._samples[index] = self._dataset[index]
            return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _CachedBatches(_Cached):
    """Dataset that returns all samples of a batch in one call."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        missing = [index for index in indices if index not in self._samples]
        if missing:
            new = self._dataset.__getitems__(missing)
            self._samples.update(zip(missing, new))
        return [self._samples[index] for index in indices]


def prefetch_in_thread(batch_count: int, measurement: Measurement) -> None:
    """Let a thread of the training process iterate each DataLoader ahead."""

    def make_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(self: Any) -> Any:  # noqa: N807
            measurement.note_change("thread_prefetch", 0, batch_count)
            return _Ahead(original(self), batch_count)

        return __iter__

    patch(DataLoader, "__iter__", make_iterator)


class _Ahead:
    """Iterator whose items a thread takes from another one ahead of time."""

    def __init__(self, iterator: Any, item_count: int) -> None:
        self._iterator = iterator
        self._items: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(item_count)
        self._ended = threading.Event()
        arguments = (iterator, self._items, self._ended)
        threading.Thread(target=_take_ahead, args=arguments, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._ended.is_set():
            raise StopIteration
        item, error = self._items.get()
        if error is not None:
            self._ended.set()
            raise error
        return item

    def __len__(self) -> int:
        return len(self._iterator)

    def __del__(self) -> None:
        self._ended.set()


def _take_ahead(iterator: Any, items: Any, ended: threading.Event) -> None:
    entry: tuple[Any, BaseException | None] = (None, None)
    while entry[1] is None and not ended.is_set():
        try:
            entry = (next(iterator), None)
        except BaseException as error:  # noqa: BLE001 - raised in the training thread
            entry = (None, error)
        while not ended.is_set():
            try:
                items.put(entry, timeout=0.1)
                break
            except queue.Full:
                continue


def compile_models(mode: str, measurement: Measurement) -> None:
    """Compile each model at its first training pass; that pass itself runs as it is."""

    def compile_model(module: torch.nn.Module) -> None:
        before = "compiled" if module._compiled_call_impl is not None else "not compiled"
        module.compile(mode=mode)
        measurement.note_change("compile", before, mode)

    _for_models(compile_model, measurement)


def use_channels_last(measurement: Measurement) -> None:
    """Store 4-D parameters and inputs of each model with the channels last."""

    def convert_model(module: torch.nn.Module) -> None:
        if not any(parameter.dim() == 4 for parameter in module.parameters()):
            return
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module.register_forward_pre_hook(convert_inputs, with_kwargs=True, prepend=True)
        measurement.note_change("channels_last", "False", "True")

    def convert_inputs(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        return tuple(map(convert, args)), {name: convert(kwargs[name]) for name in kwargs}

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=torch.channels_last)
        return value

    _for_models(convert_model, measurement)


def _for_models(action: Callable[[torch.nn.Module], None], measurement: Measurement) -> None:
    """Call an action on each outermost module before its first training pass in the first steps."""
    outermost: list[torch.nn.Module] = []
    prepared: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def before(module: torch.nn.Module, args: Any) -> None:
        if outermost or torch.compiler.is_compiling():
            return
        outermost.append(module)
        if module not in prepared and _is_trained(module):
            prepared.add(module)
            try:
                action(module)
            except Exception as error:  # noqa: BLE001 - reported, and the job ends
                measurement.fail(f"{type(error).__name__}: {error}")

    def after(module: torch.nn.Module, args: Any, result: Any) -> None:
        if outermost and outermost[-1] is module:
            outermost.clear()

    handles = [
        register_module_forward_pre_hook(before),
        register_module_forward_hook(after, always_call=True),
    ]

    def remove() -> None:
        while handles:
            handles.pop().remove()

    measurement.during_warmup(remove)


def _is_trained(module: torch.nn.Module) -> bool:
    return (
        torch.is_grad_enabled()
        and module.training
        and any(parameter.requires_grad for parameter in module.parameters())
    )


def set_optimizer_kernels(kernels: str, measurement: Measurement) -> None:
    """Create optimizers of torch with fused or foreach kernels."""
    options = {"fused": kernels == "fused", "foreach": kernels == "foreach"}

    def change(original: Callable[..., Any]) -> Callable[..., Any]:
        accepted = options.keys() & inspect.signature(original).parameters.keys()

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            before = next((name for name in options if kwargs.get(name)), "default")
            kwargs.update({name: options[name] for name in accepted})
            original(self, *args, **kwargs)
            if kernels in accepted:
                measurement.note_change("optimizer", before, kernels)

        return __init__

    for value in list(vars(torch.optim).values()):
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
            parameters = inspect.signature(value.__init__).parameters
            if "__init__" in vars(value) and options.keys() & parameters.keys():
                patch(value, "__init__", change)


WORKER_MODULE = "torch.utils.data._utils.worker"


def set_threads(count: int, measurement: Measurement) -> None:
    """Set the number of intra-op threads, and ignore calls of the script that set it.

    DataLoader workers still use one thread.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    measurement.note_change("intra_op_threads", before, count)

    def ignore(original: Callable[[int], None]) -> Callable[[int], None]:
        def set_num_threads(number: int) -> None:
            if sys._getframe(1).f_globals.get("__name__") == WORKER_MODULE:
                original(number)
            else:
                measurement.note_change("intra_op_threads", number, count)

        return set_num_threads

    patch(torch, "set_num_threads", ignore)


def turn_off_anomaly_detection(measurement: Measurement) -> None:
    """Leave anomaly detection off where the script turns it on."""

    def ignore(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            if enabled:
                measurement.note_change("anomaly_detection", "on", "off")
            original(False, check_nan)

        return set_anomaly_enabled

    patch(torch, "set_anomaly_enabled", ignore)


def unset_debug_variables(measurement: Measurement) -> None:
    """Unset debug variables that the script has set, and ignore those that it sets later."""
    removed = [name for name in DEBUG_VARIABLES if os.environ.pop(name, None) is not None]
    removed += measurement.plan.removed_variables
    if removed:
        measurement.note_change("debug_variables", ", ".join(removed), "unset")

    def ignore(original: Callable[..., None]) -> Callable[..., None]:
        def __setitem__(self: Any, name: str, text: str) -> None:  # noqa: N807
            if name in DEBUG_VARIABLES:
                measurement.note_change("debug_variables", name, "unset")
            else:
                original(self, name, text)

        return __setitem__

    patch(type(os.environ), "__setitem__", ignore)


def set_matmul_precision(precision: str, measurement: Measurement) -> None:
    """Set the precision of float32 matrix products, and ignore calls of the script that set it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    measurement.note_change("matmul_precision", before, precision)
    patch(torch, "set_float32_matmul_precision", lambda _: lambda _precision: None)


def set_cudnn_benchmark(measurement: Measurement, *, is_on: bool) -> None:
    """Set cuDNN's benchmark mode, after the script has set it."""

    cudnn: Any = torch.backends.cudnn

    def enforce() -> None:
        before = cudnn.benchmark
        cudnn.benchmark = is_on
        measurement.note_change("cudnn_benchmark", before, is_on)

    if torch.cuda.is_available() and cudnn.is_available():
        measurement.during_warmup(enforce)
