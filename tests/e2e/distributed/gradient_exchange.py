"""Plants communication: two ranks exchange 80 MB of gradients for a handful of samples.

Run it under ``python -m torch.distributed.run --standalone --nproc-per-node 2``.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SUSPECT = "communication"
CAUSE = "gradient_exchange"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 1024)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    inputs = torch.randn(4, 4096)
    for _ in range(arguments.steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    del model  # its reducer must not outlive the process group: torch may wait forever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
