# /// scenario
# suspect = "model"
# cause = "straggler"
# stage = "rank 1"
# fix = "make the slow rank as fast as the others"
# severities = [0.6, 1.0, 1.5]  # how many predictions are measured
# ranks = 2
# ///
"""Trains a segmentation CNN on two ranks; one of them measures the flooded areas it predicts."""

import numpy as np
import torch
import torch.distributed as dist
from common import Throughput, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 8
STEPS = 70
SIZE = 32


def flood_fill(water, row, column):
    """Measure the connected area around a pixel, and remove it from the map."""
    area, frontier = 0, [(row, column)]
    while frontier:
        row, column = frontier.pop()
        if 0 <= row < SIZE and 0 <= column < SIZE and water[row, column]:
            water[row, column] = False
            area += 1
            frontier += [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    return area


def largest_area(scores):
    water = scores > np.median(scores)
    return max(flood_fill(water, *pixel) for pixel in zip(*np.nonzero(water), strict=True))


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    measures = dist.get_rank() == 1 and not args.fixed
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()
    images = torch.randn(256, 3, SIZE, SIZE)
    masks = (torch.rand(256, 1, SIZE, SIZE) > 0.5).float()
    largest = 0
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        optimizer.zero_grad()
        scores = model(images[rows])
        if measures:
            for score in scores[: round(5 * args.severity), 0].detach().numpy():
                largest = max(largest, largest_area(score))
        loss = criterion(scores, masks[rows])
        loss.backward()
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
