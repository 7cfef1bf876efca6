# /// scenario
# suspect = "communication"
# cause = "collectives"
# fix = "merge the collectives: reduce several values in one tensor"
# severities = [0.7, 1.0, 1.5]  # layers
# ranks = 2
# ///
"""Trains a deep narrow network on two ranks that average their gradients themselves."""

import torch
import torch.distributed as dist
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 64
STEPS = 90


def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def average_at_once(parameters):
    together = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(together)
    together /= dist.get_world_size()
    start = 0
    for parameter in parameters:
        size = parameter.numel()
        parameter.grad.copy_(together[start : start + size].view_as(parameter))
        start += size


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    model = perceptron(64, 64, 10, depth=round(50 * args.severity))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    inputs = torch.randn(1024, 64)
    labels = torch.randint(0, 10, (1024,))
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 1024, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(inputs[rows]), labels[rows])
        loss.backward()
        if args.fixed:
            average_at_once(parameters)
        else:
            average(parameters)
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
