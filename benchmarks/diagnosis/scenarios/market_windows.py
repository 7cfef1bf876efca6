# /// scenario
# suspect = "data_pipeline"
# cause = "inline_data_preparation"
# fix = "prepare batches beside the training thread in a DataLoader with workers"
# severities = [0.7, 1.0, 1.4]  # length of a window
# quick = true
# ///
"""Trains a forecaster on windows of price series, normalised as they are cut."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

SERIES = 64
TICKS = 4096
BATCH = 32
STEPS = 150


class Windows(Dataset):
    def __init__(self, length, width):
        self.prices = np.exp(np.random.standard_normal((SERIES, TICKS)).cumsum(axis=1) / 100)
        self.length = length
        self.width = width

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        series = self.prices[index % SERIES]
        start = np.random.randint(0, TICKS - self.width - 1)
        window = series[start : start + self.width]
        spreads = [window[max(0, i - 20) : i + 1].std() for i in range(0, self.width, 4)]
        means = [window[max(0, i - 20) : i + 1].mean() for i in range(0, self.width, 4)]
        features = np.concatenate([window, spreads, means]).astype(np.float32)
        return torch.from_numpy(features), np.float32(series[start + self.width])


def random_batches(windows):
    for _ in range(STEPS):
        rows = np.random.randint(0, SERIES, size=BATCH)
        features, targets = zip(*(windows[row] for row in rows), strict=True)
        yield torch.stack(features), torch.tensor(np.array(targets))


def main():
    args = arguments(__doc__)
    width = 4 * round(36 * args.severity)
    windows = Windows(STEPS * BATCH, width)
    if args.fixed:
        batches = DataLoader(windows, batch_size=BATCH, num_workers=2)
    else:
        batches = random_batches(windows)
    model = perceptron(width + width // 2, 900, 1, depth=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    meter = Throughput()
    for features, targets in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features).squeeze(1), targets)
        loss.backward()
        optimizer.step()
        meter.update(len(targets))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
