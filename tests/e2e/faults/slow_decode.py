"""Planted fault: decoding each sample costs far more than the model's work on it.

Images are kept as PNG-like blobs and unfiltered row by row in Python; two workers cannot keep up.
"""

import argparse
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_decode"

SIZE = 64
CHANNELS = 3
IMAGES = 512
BATCH = 40


def encode_image(image):
    """Average-filters every row against its neighbours, then deflates, as PNG does."""
    pixels = image.reshape(SIZE, SIZE * CHANNELS).astype(np.int16)
    before = np.pad(pixels, ((0, 0), (CHANNELS, 0)))[:, :-CHANNELS]
    above = np.pad(pixels, ((1, 0), (0, 0)))[:-1]
    return zlib.compress(((pixels - (before + above) // 2) % 256).astype(np.uint8).tobytes())


def decode_image(blob):
    """The inverse of ``encode_image``: the image as a uint8 array (height, width, channels)."""
    data = zlib.decompress(blob)
    width = SIZE * CHANNELS
    above = bytearray(width)
    rows = []
    for start in range(0, len(data), width):
        row = bytearray(data[start : start + width])
        for i in range(width):
            before = row[i - CHANNELS] if i >= CHANNELS else 0
            row[i] = (row[i] + (before + above[i]) // 2) % 256
        rows.append(row)
        above = row
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(SIZE, SIZE, CHANNELS)


class EncodedImages(Dataset):
    def __init__(self, length):
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, size=(IMAGES, SIZE, SIZE, CHANNELS))
        self.blobs = [encode_image(image) for image in images]
        self.labels = rng.integers(0, 10, size=IMAGES)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = decode_image(self.blobs[index % IMAGES])
        pixels = torch.from_numpy(image.astype(np.float32) / 255.0).permute(2, 0, 1)
        return pixels, int(self.labels[index % IMAGES])


def main():
    parser = argparse.ArgumentParser(description="Trains a small CNN on encoded images.")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(EncodedImages(args.steps * BATCH), batch_size=BATCH, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(CHANNELS, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (SIZE // 4) ** 2, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
