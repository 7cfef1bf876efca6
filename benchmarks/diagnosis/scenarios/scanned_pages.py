# /// scenario
# suspect = "data_pipeline"
# cause = ["slow_decode", "slow_augmentation"]
# stage = "decode"
# fix = ["decode once and cache the result", "augment whole batches instead of samples"]
# severities = [0.7, 1.0, 1.5]  # pixels of a page
# quick = true
# ///
"""Trains a page classifier on scans, unpacked and straightened as they are read."""

import numpy as np
import torch
from common import Samples, arguments, classify, convolutions, sgd, train
from torch import nn
from torch.utils.data import DataLoader

PAGES = 128
BATCH = 24


def unpack(runs, shape):
    """Black and white in turn, as a fax sends them."""
    pixels = bytearray()
    colour = 0
    for count in runs:
        pixels.extend([colour] * count)
        colour = 255 - colour
    return np.frombuffer(pixels, dtype=np.uint8).reshape(shape)


def rotate(page, angle, strip=4):
    """Turns a page by an angle in radians, a few rows at a time."""
    size = len(page)
    columns = np.arange(size) - size / 2
    turned = np.empty_like(page)
    for row in range(0, size, strip):
        y = np.arange(row, row + strip)[:, None] - size / 2
        rows = np.rint(y * np.cos(angle) + columns * np.sin(angle) + size / 2).astype(int)
        columns_of = np.rint(columns * np.cos(angle) - y * np.sin(angle) + size / 2).astype(int)
        turned[row : row + strip] = page[rows.clip(0, size - 1), columns_of.clip(0, size - 1)]
    return turned


class Scans(Samples):
    def __init__(self, length, size, prepared):
        super().__init__(length)
        self.shape = (size, size)
        self.runs = []
        for _ in range(PAGES):
            runs = np.minimum(np.random.geometric(0.5, size=size * size), 200)
            ends = runs.cumsum()
            runs = runs[: np.searchsorted(ends, size * size) + 1]
            runs[-1] -= runs.sum() - size * size
            self.runs.append(runs.tolist())
        self.pages = [unpack(runs, self.shape) for runs in self.runs] if prepared else None

    def __getitem__(self, index):
        row = index % PAGES
        if self.pages:
            page = self.pages[row]
        else:
            page = rotate(unpack(self.runs[row], self.shape), np.random.uniform(-0.1, 0.1))
        return torch.from_numpy(page.astype(np.float32))[None] / 255.0, row % 4


def rotate_batch(pages, angle):
    turn = torch.tensor([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0]])
    grid = nn.functional.affine_grid(turn.float().expand(len(pages), 2, 3), pages.shape, False)
    return nn.functional.grid_sample(pages, grid, mode="nearest", align_corners=False)


def classify_rotated(model, pages, labels):
    return classify(model, rotate_batch(pages, np.random.uniform(-0.1, 0.1)), labels)


def main():
    args = arguments(__doc__)
    size = 12 * round(8 * args.severity**0.5)
    scans = Scans(140 * BATCH, size, args.fixed)
    loader = DataLoader(scans, BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.AvgPool2d(3), convolutions(1, size // 3, 8, classes=4))
    train(model, sgd(model), loader, classify_rotated if args.fixed else classify)


if __name__ == "__main__":
    main()
