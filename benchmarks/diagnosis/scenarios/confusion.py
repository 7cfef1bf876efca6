# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "keep metrics as tensors, read values rarely"
# severities = [0.6, 1.0, 1.6]  # pixels that are counted
# ///
"""Trains a segmenter and counts, class by class, what it confuses."""

import torch
from common import Throughput, arguments
from torch import nn

CLASSES = 6
SIZE = 32
BATCH = 16
STEPS = 140


def count(confusion, predicted, actual):
    for guess, truth in zip(predicted, actual, strict=True):
        confusion[int(truth)][int(guess)] += 1


def main():
    args = arguments(__doc__)
    images = torch.randn(512, 3, SIZE, SIZE)
    masks = torch.randint(0, CLASSES, (512, SIZE, SIZE))
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, CLASSES, 3, padding=1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    confusion = [[0] * CLASSES for _ in range(CLASSES)]
    total = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    looked_at = round(BATCH * SIZE * SIZE * 0.6 * args.severity)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        scores = model(images[rows])
        loss = criterion(scores, masks[rows])
        loss.backward()
        optimizer.step()
        predicted = scores.argmax(dim=1).flatten()[:looked_at]
        actual = masks[rows].flatten()[:looked_at]
        if args.fixed:
            total += torch.bincount(actual * CLASSES + predicted, minlength=CLASSES**2)
        else:
            count(confusion, predicted, actual)
        meter.update(BATCH)
    right = int(total.view(CLASSES, -1).trace()) or sum(confusion[i][i] for i in range(CLASSES))
    print(f"final loss {loss.item():.4f}, {right} pixels right")
    meter.report()


if __name__ == "__main__":
    main()
