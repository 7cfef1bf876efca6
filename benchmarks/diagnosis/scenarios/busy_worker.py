# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.2]  # what a worker does for a sample; it stays ahead of the model
# quick = true
# ///
"""Trains a CNN on images that a worker crops and flips, which takes it half of the step."""

import numpy as np
import torch
from common import Images, arguments, convolutions, sgd, train
from torch.utils.data import DataLoader

BATCH = 24


class Crops(Images):
    passes = 1

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        for _ in range(self.passes):
            padded = np.pad(image.numpy(), ((0, 0), (4, 4), (4, 4)))
            row, column = np.random.randint(0, 9, size=2)
            crop = padded[:, row : row + 32, column : column + 32]
            image = torch.from_numpy(crop[:, :, ::-1].copy())
        return image, label


def main():
    args = arguments(__doc__)
    crops = Crops(130 * BATCH, seed=args.seed)
    crops.passes = round(6 * args.severity)
    loader = DataLoader(crops, BATCH, shuffle=True, num_workers=1, prefetch_factor=4)
    model = convolutions(width=32)
    train(model, sgd(model), loader)


if __name__ == "__main__":
    main()
