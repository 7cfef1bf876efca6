# /// scenario
# suspect = "communication"
# cause = "gradient_exchange"
# fix = "give each rank more to compute: a larger batch per rank"
# severities = [0.7, 1.0, 1.5]  # parameters
# ranks = 2
# quick = true
# ///
"""Trains wide linear layers on few samples per rank, data-parallel."""

import torch
import torch.distributed as dist
from common import Throughput, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 50


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    width = 64 * round(36 * args.severity**0.5)
    batch = 128 if args.fixed else 8
    layers = nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, width))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(1024, 512)
    meter = Throughput(warm_up=5)
    for _ in range(STEPS):
        rows = torch.randint(0, 1024, (batch,))
        optimizer.zero_grad()
        loss = model(inputs[rows]).square().mean()
        loss.backward()
        optimizer.step()
        meter.update(2 * batch)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
