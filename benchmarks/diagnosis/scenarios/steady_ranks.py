# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ranks = 2
# ///
"""Trains a CNN on two ranks that have the same to do."""

import torch
import torch.distributed as dist
from common import Throughput, arguments, convolutions
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 24
STEPS = 110


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(convolutions(3, 32, 8 * round(4 * args.severity)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(0, 10, (512,))
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
