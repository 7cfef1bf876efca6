# /// scenario
# suspect = "data_pipeline"
# cause = "worker_startup"
# stage = "starting"
# fix = "keep the workers alive between epochs: build the loader once, with persistent workers"
# severities = [0.7, 1.0, 1.5]  # 1 is six steps per epoch
# ///
"""Trains a demand forecaster; every epoch sees the shops from another starting day."""

import itertools

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SHOPS = 128
DAYS = 720
WINDOW = 112
BATCH = 16
STEPS = 600


class Demand(Dataset):
    def __init__(self, length, seed):
        rng = np.random.default_rng(seed)
        season = np.sin(np.arange(DAYS) * 2 * np.pi / 7)
        self.sold = (rng.gamma(3.0, 4.0, size=(SHOPS, DAYS)) * (2 + season)).astype(np.float32)
        self.length = length
        self.holidays = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        start = np.random.randint(DAYS - WINDOW - 1)
        days = slice(start, start + WINDOW)
        window = self.sold[index % SHOPS, days]
        scale = window.mean()
        features = np.stack([window / scale, self.holidays[days]])
        return torch.from_numpy(features), self.sold[index % SHOPS, start + WINDOW] / scale


def read_holidays(_):
    """Every worker has its own."""
    rng = np.random.default_rng(1)
    get_worker_info().dataset.holidays = (rng.random(DAYS) < 0.03).astype(np.float32)


def batches(dataset):
    return DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=2, worker_init_fn=read_holidays
    )


class Forecaster(nn.Module):
    """Convolutions that look further back with each layer."""

    def __init__(self, width=32):
        super().__init__()
        sizes = [2, width, width, width, width]
        self.layers = nn.ModuleList(
            nn.Conv1d(before, after, 3, dilation=2**depth, padding=2**depth)
            for depth, (before, after) in enumerate(itertools.pairwise(sizes))
        )
        self.head = nn.Linear(width, 1)

    def forward(self, hidden):
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return self.head(hidden[:, :, -1]).squeeze(1)


def train_epoch(model, optimizer, loader, meter):
    total = 0.0
    for features, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        meter.update(len(target))
    return total / len(loader)


def main():
    args = arguments(__doc__)
    steps = max(2, round(6 / args.severity))
    demand = Demand(steps * BATCH, args.seed)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    if args.fixed:
        loader = DataLoader(
            demand,
            batch_size=BATCH,
            shuffle=True,
            num_workers=2,
            worker_init_fn=read_holidays,
            persistent_workers=True,
        )
    for epoch in range(STEPS // steps):
        if not args.fixed:
            loader = batches(demand)
        error = train_epoch(model, optimizer, loader, meter)
        if epoch % 10 == 0:
            print(f"epoch {epoch} error {error.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
