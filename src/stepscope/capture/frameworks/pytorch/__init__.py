"""Steps and phases of an unmodified PyTorch script.

`install` runs once, right after `import torch`. It patches class attributes and module functions
of torch that training scripts call once per batch or step; it changes no model, optimizer or
pickled object, and torch.compile traces the original functions.

    modules       forward, backward, and updates without an optimizer
    models        description of the models and their inputs
    optimizers    optimizer steps, GradScaler
    loading       DataLoader: waiting, fetching, samples, collating, pinning
    transforms    the members of a Compose-like chain
    checkpoints   torch.save, safetensors
    collectives   torch.distributed calls of the script, and overlap statistics of DDP
    flight_recorder/  every collective, from PyTorch's recorder; sends and receives
    settings      settings that change how fast the job runs, compilations, rank of the process
    tensors/      statistics of weights, gradients and losses, on request
    nan_search/   origin of NaN and infinite numbers, on request
    memory_history  snapshots of device memory where an allocation fails, on request
    device_clock  phase times on the device, copies from the host
    window        detailed windows, and their recorders: libkineto, the framework's profiler
    patching      replacement of functions, transparent to pickle, inspect and torch.compile
"""

from __future__ import annotations

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress, record_versions, watch_steps
from stepscope.capture.frameworks.pytorch import (
    checkpoints,
    collectives,
    device_clock,
    loading,
    memory_history,
    modules,
    nan_search,
    optimizers,
    settings,
    tensors,
    window,
)
from stepscope.capture.frameworks.pytorch.patching import hide_from_compiler
from stepscope.capture.guard import Probe, install_parts
from stepscope.capture.import_hooks import after_import

_probe = Probe("PyTorch")


def install() -> None:
    """Patch the imported torch."""
    install_parts(
        "PyTorch",
        modules.install, modules.install_autograd, optimizers.install, loading.install,
        device_clock.install_copies, checkpoints.install, device_clock.install, settings.install,
        tensors.install, nan_search.install, memory_history.install, window.install,
    )  # fmt: skip
    after_import("torch.distributed", collectives.install)
    after_import("torch._dynamo.callback", settings.install_compiling)
    record_versions(_find_versions)
    progress.on_some_boundaries(_probe.protect(_record_rank))
    watch_steps()
    install_parts("PyTorch", hide_from_compiler)


def _find_versions() -> dict[str, str]:
    import torch

    versions = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    present = {name: version for name, version in versions.items() if version is not None}
    return {"torch": str(torch.__version__), **present}


def _record_rank() -> None:
    """Record the rank, if the script has set it, or joined other processes, since the start."""
    current, rank = session.current(), settings.find_rank()
    if current is not None and rank is not None and rank != current.rank:
        _probe.fact("rank", rank=rank, world_size=settings.find_world_size())
