"""Adapters of frameworks, and the imports after which they are installed.

An adapter is a function without arguments, `package.module:function`, that runs once in a process
of the job, right after it has imported a module. It imports nothing that the job has not imported,
and is a public interface of its package (`install` of the packages here).

Other packages offer adapters by entry points of the group `stepscope.frameworks`, named after the
module:

    [project.entry-points."stepscope.frameworks"]
    "my_framework" = "my_package.stepscope_adapter:install"

They are looked up once, by `stepscope run`: reading the entry points of an environment takes too
long for every process.
"""

from __future__ import annotations

import os
import sys

from stepscope.capture import marks
from stepscope.capture.guard import Probe
from stepscope.capture.import_hooks import after_import
from stepscope.entry_points import entry_points

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "stepscope.frameworks"
ADAPTERS_VARIABLE = "STEPSCOPE_ADAPTERS"
"""Environment variable with the adapters of other packages: MODULE=PACKAGE.MODULE:FUNCTION, …"""
_HERE = "stepscope.capture.frameworks"
_PROGRESS = f"{_HERE}.progress"
ADAPTERS = {
    "torch": f"{_HERE}.pytorch:install",
    "safetensors.torch": f"{_HERE}.pytorch.checkpoints:install_safetensors",
    "torch.distributed.checkpoint": f"{_HERE}.pytorch.checkpoints:install_distributed",
    "xgboost": f"{_HERE}.xgboost:install",
    "jax": f"{_HERE}.jax:install",
    "ray.train": f"{_HERE}.trainers:install_ray",
    "ray.data": f"{_HERE}.trainers:install_ray_data",
    "grain._src.python.dataset.dataset": f"{_HERE}.grain:install",
    "lightning.pytorch.trainer.trainer": f"{_HERE}.trainers:install_lightning",
    "pytorch_lightning.trainer.trainer": f"{_HERE}.trainers:install_standalone_lightning",
    "transformers.trainer": f"{_HERE}.trainers:install_transformers",
    "accelerate.accelerator": f"{_HERE}.trainers:install_accelerate",
    "keras": f"{_HERE}.keras:install",
    "tensorflow": f"{_HERE}.tensorflow:install",
}
"""Adapters of stepscope, by the module that wakes them."""
OLDEST_RELEASES = {
    "torch": ("PyTorch", "1.13", "torch"),
    "lightning": ("Lightning", "2.0", "lightning.pytorch.trainer.trainer"),
    "pytorch_lightning": ("pytorch_lightning", "1.9", "pytorch_lightning.trainer.trainer"),
    "transformers": ("Transformers", "4.30", "transformers.trainer"),
    "accelerate": ("Accelerate", "0.20", "accelerate.accelerator"),
    "keras": ("Keras", "2.13", "keras"),
    "tensorflow": ("TensorFlow", "2.12", "tensorflow"),
    "jax": ("JAX", "0.4.20", "jax"),
    "xgboost": ("XGBoost", "1.7", "xgboost"),
}
"""Name and oldest supported release of frameworks, by module, and the module that wakes their
adapter."""


def install_after_imports() -> None:
    """Install each adapter as soon as the job has imported its module."""
    for module, adapter in {**ADAPTERS, **_other_adapters()}.items():
        # One probe for each: that an adapter fails must not stop others.
        probe = Probe(f"what the adapter of {module} records")
        after_import(module, probe.protect(_Installation(adapter)))
    marks.step_listeners.append(Probe("steps that the script marks").protect(_follow_marks))


def _follow_marks() -> None:
    """Load `progress` at the first mark of a step, if no adapter has: it listens to marks."""
    if _PROGRESS not in sys.modules:
        try:
            import stepscope.capture.frameworks.progress  # noqa: F401
        except OSError:  # a process without descriptors is not recorded anyway
            pass


def find_other_adapters() -> dict[str, str]:
    """Return the adapters that installed packages offer, by module."""
    return {entry.name: entry.value for entry in entry_points(GROUP)}


def encode_adapters(adapters: Mapping[str, str]) -> str:
    """Return the value of the environment variable for adapters."""
    return ",".join(f"{module}={adapter}" for module, adapter in adapters.items())


def _other_adapters() -> dict[str, str]:
    text = os.environ.get(ADAPTERS_VARIABLE, "")
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


class _Installation:
    """Installation of one adapter."""

    __slots__ = ("_adapter",)

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter

    def __call__(self) -> None:
        import importlib  # which a process that imports no framework does not need

        module, _, function = self._adapter.partition(":")
        getattr(importlib.import_module(module), function)()
