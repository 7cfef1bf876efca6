# /// scenario
# suspect = "communication"
# cause = "collectives"
# fix = "gather less: reduce the counts of the metric instead of all predictions"
# severities = [0.7, 1.0, 1.4]  # samples in a batch
# ranks = 2
# ///
"""Segments rivers in aerial images on two ranks, with the mean IoU over both."""

import torch
import torch.distributed as dist
from common import RANK, RANKS, Throughput, arguments, criterion, sgd, share
from torch import nn

CLASSES = 8
SIZE = 64


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


def everywhere(logits, masks):
    """The counts over what all ranks have predicted."""
    parts = [None] * RANKS
    dist.all_gather_object(parts, {"logits": logits, "masks": masks})
    return sum(crossings(part["logits"], part["masks"]) for part in parts)


def everywhere_counted(logits, masks):
    counts = crossings(logits, masks)
    dist.all_reduce(counts)
    return counts


def main():
    args = arguments(__doc__, threads=None)
    model = share(network())
    torch.manual_seed(args.seed * 10 + RANK)
    images = torch.rand(128, 3, SIZE, SIZE)
    masks = torch.randint(CLASSES, (128, SIZE, SIZE))
    batch = round(24 * args.severity)
    optimizer = sgd(model, lr=0.05)
    counted = everywhere_counted if args.fixed else everywhere
    total = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    meter = Throughput()
    for _ in range(120):
        rows = torch.randint(128, (batch,))
        logits = model(images[rows])
        loss = criterion(logits, masks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += counted(logits.detach(), masks[rows])
        meter.update(batch)
    meter.report(loss)


if __name__ == "__main__":
    main()
