# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.2]  # what a worker does for a sample; it stays ahead of the model
# quick = true
# ///
"""Trains a CNN on images that a worker crops and flips, which takes it half of the step."""

import numpy as np
import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 24
STEPS = 130


class Crops(Images):
    def __init__(self, length, seed, passes):
        super().__init__(length, 32, seed)
        self.passes = passes

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        for _ in range(self.passes):
            padded = np.pad(image.numpy(), ((0, 0), (4, 4), (4, 4)))
            row, column = np.random.randint(0, 9, size=2)
            image = torch.from_numpy(
                padded[:, row : row + 32, column : column + 32][:, :, ::-1].copy()
            )
        return image, label


def main():
    args = arguments(__doc__)
    crops = Crops(STEPS * BATCH, args.seed, round(6 * args.severity))
    loader = DataLoader(crops, batch_size=BATCH, shuffle=True, num_workers=1, prefetch_factor=4)
    model = convolutions(3, 32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
