"""Forward and backward passes, and updates of parameters without a torch optimizer.

Only `torch.nn.Module.__call__` is patched. Inner calls cost one attribute test; the outermost
one is recorded. Loss modules and modules used as data transforms are not forward passes.

Backward passes: the common entry of `Tensor.backward`, `torch.autograd.backward` and `grad`. The
public functions are not patched: torch.compile recognizes them by identity.

Updates of parameters without a torch optimizer, to tell training steps from micro-batches. Before
each backward pass a few parameters of the modules that are trained are compared with their state
after the backward pass before: an update in place (`with torch.no_grad(): p -= lr * p.grad`) raises
their version counter. An update through `p.data` does not, but clearing or zeroing the gradients
shows. Only metadata of tensors is read, and nothing at all once an optimizer has stepped.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import (
    collectives,
    device_clock,
    models,
    nan_search,
    tensors,
)
from stepscope.capture.frameworks.pytorch.patching import (
    is_compiling,
    patch,
    patch_internal,
    without_functions,
)
from stepscope.capture.guard import Probe
from stepscope.capture.stack_texts import sample_entry
from stepscope.spool import Flag, Kind, native, pack_forward

_SIZED = Flag.SIZED
_SIZED_IN_EVAL_MODE = Flag.SIZED | Flag.EVAL_MODE
_probe = Probe("forward passes", coarse=True)
SELECTION_NAMES = ("_compiled_call_impl", "_call_impl")
"""Names that `torch.nn.Module.__call__` uses: the compiled implementation, if any, or the other."""


class ReentryGuard(threading.local):
    """Flag of one thread: an outermost call is active, so calls inside it are not recorded.

    The flag is thread-local: a thread that loads batches in the background must not hide the
    forward passes of another thread.
    """

    active = False
    evaluates = False
    """True if the latest outermost call was in eval mode, or without gradients."""


module_call: Any = ReentryGuard() if native is None else native.CallGuard()
"""Active during module calls, and during batch fetches, in which modules are data transforms."""


def install() -> None:
    """Patch `torch.nn.Module.__call__`."""
    original = torch.nn.Module.__call__
    patch(torch.nn.Module, "__call__", _timed)
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        compiler: Any = sys.modules.get(name)  # if loaded already, it refers to the original
        if getattr(compiler, "unpatched_nn_module_call", None) is original:
            compiler.unpatched_nn_module_call = torch.nn.Module.__call__


def _make_training() -> Any:
    """Return the compiled calls of a step (`spool._hot`), without what they need of Python; None
    where Python does all of them."""
    loss_class = PYTORCH.find("loss")
    can_tell = PYTORCH.find("is_compiling") is not None
    if native is None or models.COUNTING is None or loss_class is None or not can_tell:
        return None
    calls = native.Training()
    calls.mode_count, calls.tracing_state, calls.numel = models.COUNTING
    calls.steps, calls.described = progress, models.described
    calls.forward_probe, calls.backward_probe = _probe, _backward_probe
    calls.tensor_class, calls.loss_class = torch.Tensor, loss_class
    calls.parallel_name = collectives.PARALLEL_CLASS
    calls.is_grad_enabled = torch.is_grad_enabled
    calls.compiler_variables, calls.is_compiling = vars(torch.compiler), is_compiling
    calls.traces_gradients = _is_tracing_gradients is not _never
    return calls


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_grad_enabled = torch.is_grad_enabled
    loss_class = PYTORCH.find("loss") or ()

    # The original only selects one of two implementations. The wrapper does the same instead of
    # calling it, because a frame more per nested module costs time, most of all where the job
    # records stacks (anomaly detection, profilers).
    is_selection = original.__code__.co_names == SELECTION_NAMES

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if module_call.active:
            if is_selection and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs)
            return original(self, *args, **kwargs)
        return call(self, args, kwargs)

    def outermost_call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if is_compiling():
            return original(module, *args, **kwargs)
        if isinstance(module, loss_class):
            module_call.active = True
            try:
                loss = original(module, *args, **kwargs)
            finally:
                module_call.active = False
            if tensors.add_module_loss is not None:
                tensors.add_module_loss(module, loss, module_call.evaluates)
            return loss
        progress.notify_work_start()
        name = type(module).__name__
        if name == collectives.PARALLEL_CLASS:
            collectives.count_parallel_pass(module)
        value = pack_forward(id(module), models.count_elements(args, kwargs))
        span = _probe.start(Kind.FORWARD, name, value)
        device = device_clock.start("forward") if device_clock.clock is not None else None
        flags = _SIZED_IN_EVAL_MODE if models.is_in_eval_mode(module) else _SIZED
        if not is_grad_enabled():
            flags |= Flag.NO_GRAD
        call = None
        was_evaluation = module_call.evaluates
        module_call.evaluates = is_evaluation = flags != _SIZED
        if not progress.has_optimizer:
            flags |= Flag.NO_OPTIMIZER
        if is_evaluation and not was_evaluation:
            sample_entry("evaluation")
        if tensors.calls is not None:
            call = tensors.start_call(module, args, kwargs, is_evaluation=is_evaluation)
        module_call.active = True
        try:
            result = original(module, *args, **kwargs)
        finally:
            module_call.active = False
            if call is not None:
                call.remove_hooks()
            if device is not None:
                device_clock.end(device)
            _probe.end(span, flags=flags)
        if is_evaluation and not progress.has_optimizer:
            progress.notify_prediction()
        if call is not None:
            tensors.end_call(call, result)
        if span is not None:  # a lazy module has its parameters only after the call
            models.describe(module, args, kwargs)
            if tensors.recorder is not None:
                tensors.add_model(module)
            if progress.watches_updates and not flags & Flag.NO_GRAD:
                add(module)
        return result

    call = outermost_call
    if training is not None:
        training.forward_original, training.forward_slow = original, outermost_call
        call = training.forward
    return __call__


_backward_probe = Probe("backward passes", coarse=True)
backward_pass = ReentryGuard()


def install_autograd() -> None:
    """Patch the function that enters the autograd engine; before PyTorch 2.3 the engine itself."""
    autograd: Any = torch.autograd
    if PYTORCH.find("run_backward") is not None:
        patch_internal("run_backward", _timed_backward)
        autograd._engine_run_backward = autograd.graph._engine_run_backward
    elif (engine := PYTORCH.find("engine")) is not None:
        autograd.Variable._execution_engine = _Engine(engine)


class _Engine:
    """The autograd engine, with passes that are recorded."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._run = _timed_backward(engine.run_backward)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _never() -> int:
    return 0


_is_tracing_gradients = (
    None if PYTORCH.find_all("is_compiling", "compile_session") else PYTORCH.find("dispatch_modes")
) or _never
"""Tells whether torch.compile traces a backward pass, in a dispatch mode. `is_compiling` is true
for all of a compilation only in the newest releases."""


def _timed_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(args: Any, kwargs: Any) -> Any:
        if is_compiling() or (not kwargs.get("accumulate_grad") and _is_tracing_gradients()):
            return original(*args, **kwargs)
        if progress.reports_work:
            progress.notify_work()
        accumulates = kwargs.get("accumulate_grad")
        if tensors.add_loss is not None and args and accumulates:
            tensors.add_loss(args[0])
        if nan_search.before_backward is not None and args and accumulates:
            nan_search.before_backward(args[0])
        name = "backward" if accumulates else "grad"
        # A pass inside another one, or inside a module, ends no step.
        is_outer = not (module_call.active or backward_pass.active)
        watches = progress.watches_updates and is_outer
        changes = 0
        if is_outer:
            progress.notify_backward_start()
        if watches:
            changes, backward_pass.active = before_backward(), True
        span = _backward_probe.start(Kind.BACKWARD, name, changes)
        device = device_clock.start("backward") if device_clock.clock is not None else None
        try:
            return original(*args, **kwargs)
        finally:
            if device is not None:
                device_clock.end(device)
            _backward_probe.end(span, flags=0 if progress.has_optimizer else Flag.NO_OPTIMIZER)
            if watches:
                backward_pass.active = False
                after_backward()

    run = recorded
    if training is not None:
        training.backward_original, training.backward_slow = original, recorded
        run = training.backward

    def timed(*args: Any, **kwargs: Any) -> Any:
        return run(args, kwargs)

    return timed


training = _make_training()

MAX_MODULES = 31
"""Limit for scripts that create a module in every step; two bits of a record's value per module."""

_update_probe = Probe("updates of parameters")


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
        with without_functions():
            for watched in self._parameters:
                parameter = watched.reference()
                if parameter is not None:
                    self.changes |= watched.compare(parameter)
        if self.changes:
            self._passes_per_step, self._passes = max(1, self._passes), 0

    def after_backward(self) -> None:
        """Remember the state of the parameters."""
        with without_functions():
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
add = _update_probe.protect(_watch.add)
_before = _update_probe.protect(_watch.before_backward)
after_backward = _update_probe.protect(_watch.after_backward)


def before_backward() -> int:
    """Return the changes since the last backward pass, as bits; see `UpdateWatch.changes`."""
    _before()
    return _watch.changes
