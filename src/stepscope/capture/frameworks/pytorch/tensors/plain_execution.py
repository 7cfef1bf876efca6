"""Check that operators compute numbers now."""

from __future__ import annotations

import torch

from stepscope.capture.frameworks.pytorch.device_clock import is_capturing


def is_plain_execution() -> bool:
    """Return True where operators compute numbers now, for the script itself.

    Not in the backward pass (checkpointing computes activations once more), under `torch.func`,
    tracers and dispatch modes (selective checkpointing counts the operators), and not while a CUDA
    graph is captured.
    """
    return (
        torch._C._current_graph_task_id() == -1
        and torch._C._functorch.maybe_current_level() is None
        and torch._C._get_tracing_state() is None
        and not torch._C._len_torch_dispatch_stack()
        and not is_capturing()
    )
