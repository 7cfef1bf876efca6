# /// scenario
# suspect = "data_pipeline"
# cause = "batch_handover"
# fix = "hand over less: bytes instead of floats, as tensors in shared memory"
# severities = [0.7, 1.0, 1.4]  # tiles in a batch
# ///
"""Trains a cloud cover regressor on 13-band satellite tiles."""

import argparse

import numpy as np
import torch
from common import Throughput
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, SIZE = 13, 64
STEPS = 160


class Tiles(Dataset):
    """Reflectances of a region, in memory."""

    def __init__(self, length, seed, raw):
        rng = np.random.default_rng(seed)
        tiles = rng.integers(0, 256, size=(256, BANDS, SIZE, SIZE), dtype=np.uint8)
        self.cover = (tiles[:, 0].mean(axis=(1, 2)) / 255.0).astype(np.float32)
        self.tiles = tiles if raw else tiles.astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.tiles[index % 256], self.cover[index % 256]


def numpy_collate(samples):
    """Batches stay NumPy arrays, so that the JAX people can use the same loader."""
    tiles, cover = zip(*samples, strict=True)
    return np.stack(tiles), np.stack(cover)


class PatchRegressor(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.patches = nn.Conv2d(BANDS, width, 16, stride=16)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, tiles):
        tokens = self.patches(tiles).flatten(2).transpose(1, 2)
        return self.head(self.norm(tokens).mean(dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    batch = round(64 * args.severity)
    loader = DataLoader(
        Tiles(STEPS * batch, args.seed, raw=args.fixed),
        batch_size=batch,
        shuffle=True,
        num_workers=2,
        collate_fn=None if args.fixed else numpy_collate,
    )
    model = PatchRegressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    meter = Throughput()
    for tiles, cover in loader:
        tiles = torch.as_tensor(tiles).float().div_(255.0)
        loss = criterion(model(tiles), torch.as_tensor(cover))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(len(cover))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
