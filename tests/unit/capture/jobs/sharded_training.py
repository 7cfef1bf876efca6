"""Training of a model whose parameters are sharded over ranks; writes what the ranks had between
them.

`sharded_training.py KIND OUT` in each rank, where KIND is fsdp2, hsdp, fsdp1 or tensor (parallel).
Rank 0 writes the losses of all ranks, the final weights, and after every step the whole parameters,
gradients and states, as `"STEP NAME"`.
"""

import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

STEPS = 4


class Net(nn.Module):
    """Layers whose sizes do not divide by the number of ranks, one with a single element."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.fc = nn.Linear(6, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.head = nn.Linear(5, 3, bias=False)
        self.scale = nn.Parameter(torch.ones(1))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens):
        """Return the logits."""
        return self.head(self.frozen(self.fc(self.table(tokens)).relu())) * self.scale


def shard(model, kind):
    """Shard the parameters of a model over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    if kind == "fsdp1":
        return FullyShardedDataParallel(
            model,
            use_orig_params=True,
            device_id=torch.device("cpu"),
            ignored_modules=[model.frozen],
        )
    if kind == "tensor":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        plan = {"fc": ColwiseParallel(output_layouts=torch.distributed.tensor.Replicate())}
        return parallelize_module(model, mesh, plan)
    shape = (2, dist.get_world_size() // 2) if kind == "hsdp" else (dist.get_world_size(),)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    fully_shard(model.fc, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(tensor):
    """Return all elements of a tensor as an array; every rank has to call it."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().numpy().copy()


def main():
    """Train."""
    kind, out = sys.argv[1:]
    if os.environ["STEPSCOPE_TENSORS"]:
        from stepscope.capture.frameworks.pytorch.tensors import shards

        shards.MAX_WAIT_S = 300.0  # on a busy machine, the other ranks may be late by seconds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = shard(Net(), kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    saved, losses = {}, []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(2 * step + dist.get_rank() * (kind != "tensor"))
        tokens = torch.randint(0, 7, (4,), generator=generator)
        optimizer.zero_grad()
        loss = model(tokens).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        for name, parameter in model.named_parameters():
            saved[f"{step} {name}"] = whole(parameter)
            if parameter.grad is not None:
                saved[f"{step} gradient/{name}"] = whole(parameter.grad)
                for key in ("exp_avg", "exp_avg_sq"):
                    state = optimizer.state[parameter][key]
                    saved[f"{step} optimizer/{key}/{name}"] = whole(state)
    gathered = [torch.empty(STEPS) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.stack(losses))
    if dist.get_rank() == 0:
        np.savez(out, losses=torch.stack(gathered).numpy(), **saved)
    dist.barrier()
    dist.destroy_process_group()


main()
