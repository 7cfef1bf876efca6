# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# fix = "keep metrics as tensors, read values rarely"
# severities = [0.6, 1.0, 1.6]  # pixels that are counted
# ///
"""Trains a segmenter and counts, class by class, what it confuses."""

import torch
from common import Throughput, arguments, criterion, sampled, sgd
from torch import nn

CLASSES = 6
SIZE = 32
BATCH = 16


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
    optimizer = sgd(model, lr=0.05)
    confusion = [[0] * CLASSES for _ in range(CLASSES)]
    total = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    looked_at = round(BATCH * SIZE * SIZE * 0.6 * args.severity)
    meter = Throughput()
    for inputs, truth in sampled([images, masks], BATCH, 140):
        optimizer.zero_grad()
        scores = model(inputs)
        loss = criterion(scores, truth)
        loss.backward()
        optimizer.step()
        predicted = scores.argmax(dim=1).flatten()[:looked_at]
        actual = truth.flatten()[:looked_at]
        if args.fixed:
            total += torch.bincount(actual * CLASSES + predicted, minlength=CLASSES**2)
        else:
            count(confusion, predicted, actual)
        meter.update(BATCH)
    meter.report(loss)


if __name__ == "__main__":
    main()
