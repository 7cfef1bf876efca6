# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# accept = ["data_pipeline/slow_dataset"]
# fix = "decode once and cache the result in an array"
# severities = [0.8, 1.0, 1.5]  # pixels of a stamp
# ///
"""Trains a recurrent classifier on stamps that are unpacked one by one, in a run of seconds."""

import zlib

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

STAMPS = 600
BATCH = 64
STEPS = 1000


class Stamps(Dataset):
    def __init__(self, length, side, cached):
        pixels = np.random.randint(0, 4, size=(STAMPS, side, side), dtype=np.uint8)
        self.packed = [zlib.compress(stamp.tobytes(), 9) for stamp in pixels]
        self.side, self.length = side, length
        self.cache = [self.unpack(i) for i in range(STAMPS)] if cached else None

    def __len__(self):
        return self.length

    def unpack(self, row):
        flat = np.frombuffer(zlib.decompress(self.packed[row]), dtype=np.uint8)
        image = flat.reshape(self.side, self.side).astype(np.float32)
        return torch.from_numpy((image - image.mean()) / (image.std() + 1e-6))

    def __getitem__(self, index):
        row = index % STAMPS
        return self.unpack(row) if self.cache is None else self.cache[row], row % 10


class Reader(nn.Module):
    """Reads a stamp in four strips."""

    def __init__(self, side):
        super().__init__()
        self.strips = nn.RNN(side * side // 4, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, stamps):
        return self.head(self.strips(stamps.reshape(len(stamps), 4, -1))[0][:, -1])


def main():
    args = arguments(__doc__)
    side = 4 * round(8 * args.severity**0.5)
    dataset = Stamps(STEPS * BATCH, side, args.fixed)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = Reader(side)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for stamps, kinds in loader:
        loss = criterion(model(stamps), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(len(kinds))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
