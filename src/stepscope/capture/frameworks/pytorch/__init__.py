"""Steps and phases of a PyTorch script that knows nothing of stepscope.

`install` runs once, right after `import torch`. What it changes are class attributes and
module functions of torch that training scripts go through once per batch or step; it leaves no
trace in models, optimizers or anything that is pickled, and torch.compile sees through it.

    progress      where one step ends and the next begins, for those who act on it
    modules       forward: the outermost module call
    models        what the models are, and what goes into them
    autograd      backward
    optimizers    optimizer steps, GradScaler
    loading       DataLoader: waiting, fetching, samples, collating, pinning
    transforms    the members of a Compose-like chain
    copies        host to device
    checkpoints   torch.save, safetensors
    collectives   torch.distributed calls of the script, and DDP's own account of its overlap
    compiling     compilations of torch.compile
    device_clock  phase times on the device
    window        detailed windows, as the monitor plans them
    libkineto     what records them: libkineto's own threads,
    profiler      or the framework's profiler
    replacing     how a function is replaced without anybody noticing
"""

from __future__ import annotations

from stepscope.capture import garbage, stacks
from stepscope.capture.frameworks.pytorch import (
    autograd,
    checkpoints,
    collectives,
    compiling,
    copies,
    device_clock,
    loading,
    modules,
    optimizers,
    window,
)
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import hide_from_compiler
from stepscope.capture.guard import Probe
from stepscope.capture.import_hooks import after_import

_probe = Probe("PyTorch")
_installed = False


def install() -> None:
    """Adapt the torch that has just been imported. Safe to call again."""
    global _installed
    if _installed:
        return
    _installed = True
    for part in (modules, autograd, optimizers, loading, copies, checkpoints, device_clock, window):
        _probe.protect(part.install)()
    after_import("torch.distributed", collectives.install)
    after_import("torch._dynamo.callback", compiling.install)
    progress.on_boundary(_probe.protect(_say_versions))
    progress.on_boundary(_watch_stacks)
    progress.on_boundary(_probe.protect(garbage.watch_this_process))
    _probe.protect(hide_from_compiler)()


def _watch_stacks() -> None:
    """At every step, because the sampler stops when the job forks."""
    stacks.watch_this_thread(stacks.MAIN_PERIOD_S)


def _say_versions() -> None:
    """At the first step, when this is known to be a process that trains."""
    import torch

    if progress.step_count == 1:
        fields = {"torch": str(torch.__version__)}
        if torch.version.cuda is not None:
            fields["cuda"] = torch.version.cuda
        if torch.version.hip is not None:
            fields["hip"] = torch.version.hip
        _probe.fact("versions", **fields)
