# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# stage = "decode"
# fix = "decode once and cache the result"
# severities = [0.7, 1.0, 1.5]  # pixels per image
# quick = true
# ///
"""Trains a CNN on images that are kept run-length encoded."""

import numpy as np
import torch
from common import Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader, Dataset

IMAGES = 256
BATCH = 32
STEPS = 140


def pack(image):
    """Pairs of a count and a value, as PackBits and RLE bitmaps have them."""
    flat = image.ravel()
    starts = np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1])
    counts = np.diff(np.concatenate([starts, [len(flat)]]))
    return np.stack([counts, flat[starts]], axis=1).astype(np.uint8).tobytes()


def unpack(blob, shape):
    pixels = bytearray()
    for position in range(0, len(blob), 2):
        pixels += blob[position + 1 : position + 2] * blob[position]
    return np.frombuffer(pixels, dtype=np.uint8).reshape(shape)


class PackedImages(Dataset):
    def __init__(self, length, size, seed, cached):
        rng = np.random.default_rng(seed)
        self.shape = (3, size, size)
        values = rng.integers(0, 256, size=(IMAGES, 3 * size * size // 2), dtype=np.uint8)
        self.blobs = [pack(np.repeat(row, 2)[: 3 * size * size]) for row in values]
        self.labels = rng.integers(0, 10, size=IMAGES)
        self.cache = [unpack(blob, self.shape) for blob in self.blobs] if cached else None
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        row = index % IMAGES
        image = self.cache[row] if self.cache else unpack(self.blobs[row], self.shape)
        return torch.from_numpy(image.astype(np.float32) / 255.0), int(self.labels[row])


def main():
    args = arguments(__doc__)
    size = 12 * round(6 * args.severity**0.5)
    dataset = PackedImages(STEPS * BATCH, size, args.seed, args.fixed)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.AvgPool2d(3), convolutions(3, size // 3, 8))
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
