"""Profile a job of torchrun from its script: `self_profiling.py STEPS`."""

from __future__ import annotations

import sys

import stepscope


def train(step_count: int) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(step_count):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        assert model.weight.grad is not None
        dist.all_reduce(model.weight.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


stepscope.start_profiling(interval_ms=100)
train(int(sys.argv[1]))
stepscope.stop_profiling()
