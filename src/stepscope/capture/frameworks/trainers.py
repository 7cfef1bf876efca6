"""Adapters of trainers: Accelerate, Lightning, Transformers and Ray Train.

Hugging Face Accelerate: numbers that the script logs, and saved states. Steps and phases, with
gradient accumulation, are those of PyTorch.

Trainer of Lightning: modes, epochs, callbacks, loggers, checkpoints and logged numbers. Steps and
phases are those of PyTorch. Arguments of the script, callbacks and their order stay as they are:
classes are patched, and no callback is added.

Trainer of Hugging Face Transformers: modes, epochs, callbacks, checkpoints and logged numbers.
Steps and phases are those of PyTorch. Callbacks and arguments of the script stay as they are.

Workers of Ray Train: their ranks, which the environment does not state. Ray starts its workers
before it knows their ranks, and runs the training function in a thread. So the rank is recorded at
the first steps, whatever framework trains. Its processes that run functions for Ray Data are
sampled.
"""

from __future__ import annotations

import atexit
import math
import sys
import threading
import time
import types
import weakref
from typing import Any

from stepscope.capture import session, stacks
from stepscope.capture.frameworks.progress import progress, watch_steps
from stepscope.capture.frameworks.tables import LIGHTNING, STANDALONE_LIGHTNING, TRANSFORMERS
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.capture.stack_texts import sample_entry
from stepscope.spool import CALLBACK_PREFIX, UNFILTERED_LOSS, Kind

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from stepscope.capture.frameworks.internals import Internals

_RAY_WORKER = "ray/_private/workers/default_worker.py"
"""Script of the processes in which Ray runs tasks."""
_probe = Probe("callbacks of the trainer")
_mode_probe = Probe("modes of the trainer", coarse=True)
_scalar_probe = Probe("numbers that the trainer logs")
_timed_classes: set[type] = set()


def time_methods(instance: object, base: type, names: Container[str]) -> None:
    """Record calls of the methods of an instance's classes below a base class, by class.

    Args:
        instance: a callback or logger; its class is patched, once.
        base: methods that the base class itself has do nothing and are not recorded.
        names: names of the methods.
    """
    if type(instance) in _timed_classes:
        return
    _timed_classes.add(type(instance))
    for owner in type(instance).__mro__:
        if owner is base:
            break
        for name, method in list(vars(owner).items()):
            is_plain = isinstance(method, types.FunctionType)  # a static method gets no instance
            if name in names and is_plain and not hasattr(method, "_is_timed"):
                patch(owner, name, _timed)
                getattr(owner, name)._is_timed = True


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    suffix = f".{original.__name__}"

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not session.live:
            return original(self, *args, **kwargs)
        span = _probe.start(Kind.ANNOTATION, CALLBACK_PREFIX + type(self).__name__ + suffix)
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span)

    return timed


def record_as(kind: int, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a wrapper that records each call of a function as an interval of a kind."""

    occasion = {Kind.CHECKPOINT: "checkpoint", Kind.MODE: "evaluation"}.get(kind)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if occasion is not None:
                sample_entry(occasion)
            span = _mode_probe.start(kind, name)
            try:
                return original(*args, **kwargs)
            finally:
                _mode_probe.end(span)

        return recorded

    return make_wrapper


def record_logged(
    parameter: str, record: Callable[[dict[str, object]], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a wrapper of a method that logs the numbers of a dictionary.

    Args:
        parameter: name of the method's first parameter, the dictionary.
        record: records more of it; must not raise.
    """

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def log(self: Any, *args: Any, **kwargs: Any) -> Any:
            values = args[0] if args else kwargs.get(parameter)
            if isinstance(values, dict):
                record_numbers(values)
                if record is not None:
                    record(values)
            return original(self, *args, **kwargs)

        return log

    return make_wrapper


@_scalar_probe.protect
def record_numbers(values: Mapping[str, object]) -> None:
    """Record the numbers among logged values as scalars; tensors, which may be on a device, are
    left out."""
    if not session.live:
        return
    t_ns = time.monotonic_ns()
    for name, value in values.items():
        if type(value) in (int, float):
            _scalar_probe.scalar(str(name), float(value), t_ns)  # type: ignore[arg-type]


_planned: weakref.WeakSet[Any] = weakref.WeakSet()
"""Trainers whose plan is recorded."""


def record_planned_steps(trainer: Any, count: object, finished_count: object = 0) -> None:
    """Record the number of steps that a trainer is going to take, once; not one that is no number.

    Args:
        trainer: object that lives as long as the training.
        count: steps of the whole training.
        finished_count: those of them that an earlier run has taken.
    """
    current = session.current()
    if current is None or not isinstance(count, int) or trainer in _planned:
        return
    remaining = count - finished_count if isinstance(finished_count, int) else count
    if remaining > 0:
        _planned.add(trainer)
        current.fact("planned_steps", count=remaining)


def install_accelerate() -> None:
    """Patch the class `Accelerator`, which has been imported."""
    accelerator = sys.modules["accelerate.accelerator"].Accelerator
    patch(accelerator, "log", record_logged("values"))
    patch(accelerator, "save_state", record_as(Kind.CHECKPOINT, "Accelerator.save_state"))


LOGGER_METHODS = ("log_metrics", "save")
_lightning_probe = Probe("Lightning")


def install_lightning() -> None:
    """Patch the package `lightning.pytorch`, whose trainer has been imported."""
    _install_lightning("lightning.pytorch", LIGHTNING)


def install_standalone_lightning() -> None:
    """Patch the package `pytorch_lightning`."""
    _install_lightning("pytorch_lightning", STANDALONE_LIGHTNING)


def _install_lightning(package: str, internals: Internals) -> None:
    trainer = sys.modules[f"{package}.trainer.trainer"].Trainer
    patch(trainer, "save_checkpoint", record_as(Kind.CHECKPOINT, "Trainer.save_checkpoint"))
    internals.patch("run", _times_lightning_callbacks(package))
    internals.patch("evaluation", record_as(Kind.MODE, "EVAL"))
    internals.patch("prediction", record_as(Kind.MODE, "PREDICT"))
    internals.patch("epoch", _records_epoch)
    internals.patch("logged", _records_numbers)
    internals.patch("without_logger", _records_unlogged)


def _times_lightning_callbacks(package: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    callback = sys.modules[f"{package}.callbacks"].Callback
    logger = sys.modules[f"{package}.loggers"].Logger
    hooks = [name for name in vars(callback) if name.startswith("on_")]

    @_lightning_probe.protect
    def time_all(trainer: Any) -> None:
        for instance in trainer.callbacks:
            time_methods(instance, callback, hooks)
        for instance in trainer.loggers:
            time_methods(instance, logger, LOGGER_METHODS)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
            time_all(self)
            return original(self, *args, **kwargs)

        return _run

    return make_wrapper


def _records_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record an epoch, and the planned steps: the trainer knows its batches now."""
    timed = record_as(Kind.ANNOTATION, "epoch")(original)

    @_lightning_probe.protect
    def record(loop: Any) -> None:
        trainer = loop.trainer
        if trainer.max_steps is not None and trainer.max_steps > 0:
            record_planned_steps(trainer, trainer.max_steps, trainer.global_step)
        elif trainer.max_epochs is not None and trainer.max_epochs > 0:
            batches = trainer.num_training_batches
            if batches != float("inf"):
                steps = -(-int(batches) // max(1, trainer.accumulate_grad_batches))
                record_planned_steps(trainer, steps * trainer.max_epochs, trainer.global_step)

    def advance(self: Any, *args: Any, **kwargs: Any) -> Any:
        if session.live:
            record(self)
        return timed(self, *args, **kwargs)

    return advance


def _records_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record numbers that Lightning has read from the device itself, for its loggers."""

    def convert_tensors_to_scalars(data: Any) -> Any:
        values = original(data)
        if isinstance(values, dict):
            record_numbers(values)
        return values

    return convert_tensors_to_scalars


def _records_unlogged(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record numbers that Lightning reads from no device, because there is no logger."""
    from stepscope.capture.frameworks.pytorch.tensors.scalars import DeviceScalars

    scalars = DeviceScalars(_scalar_probe)
    atexit.register(_scalar_probe.protect(scalars.finish))

    @_scalar_probe.protect
    def record(connector: Any, metrics: Any) -> None:
        if connector.trainer.loggers:
            return
        for name, value in metrics.items() if session.live else ():
            if getattr(value, "numel", lambda: 0)() == 1 and not value.is_complex():
                scalars.add(str(name), value)
        record_numbers(metrics)

    def log_metrics(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        if metrics:
            record(self, metrics)
        return original(self, metrics, *args, **kwargs)

    return log_metrics


_transformers_probe = Probe("the trainer of Transformers")
_thread = threading.local()
"""`.epoch` is the open interval of an epoch, `.loss` the loss of the latest training step."""


def install_transformers() -> None:
    """Patch the module `transformers.trainer`, which has been imported."""
    trainer = sys.modules["transformers.trainer"].Trainer
    callback = sys.modules["transformers.trainer_callback"].TrainerCallback
    patch(trainer, "evaluate", record_as(Kind.MODE, "EVAL"))
    patch(trainer, "predict", record_as(Kind.MODE, "PREDICT"))
    patch(trainer, "log", record_logged("logs", _record_unfiltered_loss))
    patch(trainer, "training_step", _remembers_loss)
    save = record_as(Kind.CHECKPOINT, "Trainer._save_checkpoint")
    TRANSFORMERS.patch("save_checkpoint", save)
    TRANSFORMERS.patch("call_event", _times_transformers_callbacks(callback))


def _remembers_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    def training_step(*args: Any, **kwargs: Any) -> Any:
        _thread.loss = loss = original(*args, **kwargs)
        return loss

    return training_step


@_scalar_probe.protect
def _record_unfiltered_loss(logs: Mapping[str, object]) -> None:
    """Record the loss of the latest step if it is NaN or infinite: the trainer replaces it in the
    one that it logs. It has just waited for the device to read that one."""
    loss, _thread.loss = getattr(_thread, "loss", None), None
    if loss is None or "loss" not in logs or not session.live:
        return
    value = float(loss)
    if not math.isfinite(value):
        _scalar_probe.scalar(UNFILTERED_LOSS, value, time.monotonic_ns())


def _times_transformers_callbacks(base: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    hooks = [name for name in vars(base) if name.startswith("on_")]

    @_transformers_probe.protect
    def prepare(handler: Any, event: str, arguments: Sequence[Any]) -> None:
        if event == "on_train_begin" and len(arguments) > 1:
            state = arguments[1]
            count, finished = getattr(state, "max_steps", None), getattr(state, "global_step", 0)
            record_planned_steps(handler, count, finished)
        for instance in handler.callbacks:
            time_methods(instance, base, hooks)
        if event == "on_epoch_begin":
            _thread.epoch = _transformers_probe.start(Kind.ANNOTATION, "epoch")

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_event(self: Any, event: str, *args: Any, **kwargs: Any) -> Any:
            prepare(self, event, args)
            try:
                return original(self, event, *args, **kwargs)
            finally:
                if event == "on_epoch_end":
                    _transformers_probe.end(getattr(_thread, "epoch", None))
                    _thread.epoch = None

        return call_event

    return make_wrapper


_ray_probe = Probe("ranks of Ray Train")


def install_ray_data() -> None:
    """Sample the thread of a worker process of Ray that runs functions for Ray Data."""
    if str(getattr(sys.modules["__main__"], "__file__", "")).endswith(_RAY_WORKER):
        stacks.watch_worker("ray.data")


@_ray_probe.protect
def install_ray() -> None:
    """Record ranks and watch the training thread, from the first step on."""
    watch_steps()
    progress.on_some_boundaries(_ray_probe.protect(_record_rank))


def _record_rank() -> None:
    current, ranks = session.current(), _find_ranks()
    if current is not None and ranks is not None and ranks[0] != current.rank:
        _ray_probe.fact("rank", rank=ranks[0], world_size=ranks[1])


def _find_ranks() -> tuple[int, int] | None:
    """Return rank and world size of this worker; None for another process."""
    train: Any = sys.modules["ray.train"]
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError:  # outside of a training function
        return None
    return None if rank is None else (int(rank), int(world_size))
