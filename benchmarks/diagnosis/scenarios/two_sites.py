# /// scenario
# suspect = "communication"
# cause = "straggler"
# stage = "rank 1"
# accept = ["communication/gradient_exchange"]
# # The slow link is imitated: rank 1 sends its gradients no faster than its share of the line.
# fix = "exchange less, or hide it better: accumulate gradients, compress them, repair the link"
# severities = [0.7, 1.0, 1.5]  # 1 is 40 MB/s
# ranks = 2
# ///
"""Trains a classifier on two ranks, one of them behind a slow line."""

import time

import torch
import torch.distributed as dist
from common import Throughput, arguments, perceptron
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
STEPS = 80


class Line:
    """Sends gradients, as fast as the line of this rank allows."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s = bytes_per_s

    def __call__(self, _, bucket):
        gradients = bucket.buffer()
        if self.bytes_per_s:
            time.sleep(gradients.nbytes / self.bytes_per_s)
        gradients /= dist.get_world_size()
        work = dist.all_reduce(gradients, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    slow = dist.get_rank() == 1 and not args.fixed
    model = DistributedDataParallel(perceptron(256, 640, 10, depth=3))
    model.register_comm_hook(None, Line(40e6 / args.severity if slow else None).__call__)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    inputs = torch.randn(1024, 256)
    labels = torch.randint(0, 10, (1024,))
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 1024, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
