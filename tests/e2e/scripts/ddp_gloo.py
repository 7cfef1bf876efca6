"""Data-parallel training over gloo; start it with ``python -m torch.distributed.run``.

With ``--out DIR`` every rank writes its losses and a hash of its final weights there.
"""

import argparse
import hashlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EXPECTED_STEPS = 30  # per rank

BATCH = 16
EPOCHS = 2


def weights_hash(model):
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description="DistributedDataParallel on CPUs.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS, help="over two epochs")
    parser.add_argument("--out", type=Path, help="folder for one result file per rank")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    length = args.steps // EPOCHS * BATCH * dist.get_world_size()
    x = torch.randn(length, 64)
    dataset = TensorDataset(x, x.sum(dim=1, keepdim=True).tanh())
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    ddp_model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05)

    losses = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(ddp_model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        lines = [*(loss.hex() for loss in losses), f"sha256 {weights_hash(model)}"]
        (args.out / f"rank{rank}.txt").write_text("\n".join(lines) + "\n")
    print(f"rank {rank} final loss {losses[-1]:.4f}")
    del ddp_model  # its reducer must not outlive the process group: gloo aborts at exit
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
