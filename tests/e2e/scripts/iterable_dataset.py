"""Streams lines of numbers through an IterableDataset that shards itself across two workers."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

EXPECTED_STEPS = 32

SHARDS = 4
FEATURES = 16
BATCH = 16


class ShardedLines(IterableDataset):
    def __init__(self, shards):
        self.shards = shards

    def __iter__(self):
        worker = get_worker_info()
        shards = self.shards if worker is None else self.shards[worker.id :: worker.num_workers]
        for shard in shards:
            with shard.open() as lines:
                for line in lines:
                    values = torch.tensor([float(value) for value in line.split(",")])
                    yield values[:-1], values[-1:]


def write_shards(folder, count):
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(FEATURES, generator=generator)
    shards = []
    for number in range(SHARDS):
        x = torch.randn(count // SHARDS, FEATURES, generator=generator)
        rows = torch.cat([x, (x @ weights)[:, None]], dim=1).tolist()
        shard = folder / f"shard-{number}.csv"
        shard.write_text("".join(",".join(f"{v:.5f}" for v in row) + "\n" for row in rows))
        shards.append(shard)
    return shards


def train(folder, steps):
    shards = write_shards(folder, steps * BATCH)
    loader = DataLoader(ShardedLines(shards), batch_size=BATCH, num_workers=2)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description="Regression on streamed shards.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS, help="a multiple of four")
    parser.add_argument("--data", type=Path, help="folder for the shards; default: a temp folder")
    args = parser.parse_args()

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train(args.data or Path(folder), args.steps)


if __name__ == "__main__":
    main()
