# /// scenario
# suspect = "communication"
# cause = "gradient_accumulation"
# accept = ["communication/gradient_exchange"]
# fix = "exchange less: accumulate gradients under model.no_sync()"
# severities = [0.7, 1.0, 1.5]  # 1 is six micro-batches per step
# ranks = 2
# ///
"""Trains a wide classifier, data-parallel, accumulating gradients over micro-batches."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from common import Throughput, arguments, perceptron
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
STEPS = 30


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    pieces = round(6 * args.severity)
    model = DistributedDataParallel(perceptron(256, 1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    inputs = torch.randn(1024, 256)
    labels = torch.randint(0, 10, (1024,))
    meter = Throughput(warm_up=3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for piece in range(pieces):
            rows = torch.randint(0, 1024, (BATCH,))
            last = piece == pieces - 1
            with model.no_sync() if args.fixed and not last else nullcontext():
                loss = criterion(model(inputs[rows]), labels[rows]) / pieces
                loss.backward()
        optimizer.step()
        meter.update(2 * BATCH * pieces)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
