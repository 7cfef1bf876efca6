"""Changes of models and optimizers."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.trial.measurement import Measurement


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
