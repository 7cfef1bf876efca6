# /// scenario
# suspect = "communication"
# cause = "collectives"
# fix = "gather less: reduce the counts of the metric instead of all predictions"
# severities = [0.7, 1.0, 1.4]  # samples in a batch
# ranks = 2
# ///
"""Segments rivers in aerial images on two ranks, with the mean IoU over both."""

import argparse

import torch
import torch.distributed as dist
from common import Throughput
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 8
SIZE = 64
STEPS = 120


def network(width=8):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, CLASSES, 4, stride=4),
    )


def crossings(logits, masks):
    """Confusion matrix: counts of true and predicted classes."""
    pairs = masks.flatten() * CLASSES + logits.argmax(dim=1).flatten()
    return torch.bincount(pairs, minlength=CLASSES**2).view(CLASSES, CLASSES)


def mean_iou(counts):
    hits = counts.diagonal()
    return (hits / (counts.sum(dim=0) + counts.sum(dim=1) - hits).clamp(min=1)).mean()


def everywhere(logits, masks):
    """The counts over what all ranks have predicted."""
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, {"logits": logits, "masks": masks})
    return sum(crossings(part["logits"], part["masks"]) for part in parts)


def everywhere_counted(logits, masks):
    counts = crossings(logits, masks)
    dist.all_reduce(counts)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(network())
    torch.manual_seed(args.seed * 10 + dist.get_rank())
    images = torch.rand(128, 3, SIZE, SIZE)
    masks = torch.randint(CLASSES, (128, SIZE, SIZE))
    batch = round(24 * args.severity)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    counted = everywhere_counted if args.fixed else everywhere
    total = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(128, (batch,))
        logits = model(images[rows])
        loss = criterion(logits, masks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += counted(logits.detach(), masks[rows])
        meter.update(2 * batch)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}, mean IoU {mean_iou(total):.3f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
