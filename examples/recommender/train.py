"""Trains the recommender, with the data pipeline the team has or the one it should have."""

import argparse
import time
from pathlib import Path

import torch
from dataset import LENGTH, MASK_ITEM, AugmentingCollate, CachedSequences, ParquetSequences
from generate import generate
from model import SequenceRecommender, training_loss
from torch.utils.data import DataLoader

BATCH = 32


def slow_loader(folder):
    return DataLoader(
        ParquetSequences(folder), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=1
    )


def fast_loader(folder):
    return DataLoader(
        CachedSequences(folder),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
        collate_fn=AugmentingCollate(folder),
    )


LOADERS = {"slow": slow_loader, "fast": fast_loader}


def batches(loader):
    """Batches without end, epoch after epoch."""
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description="Trains the recommender.")
    parser.add_argument("--pipeline", choices=LOADERS, default="slow")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the other core belongs to the loader's workers
    generate(args.data)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = SequenceRecommender(items=MASK_ITEM + 1, length=LENGTH).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stream = batches(LOADERS[args.pipeline](args.data))

    started = time.perf_counter()
    for step in range(1, args.steps + 1):
        batch = {name: part.to(device, non_blocking=True) for name, part in next(stream).items()}
        optimizer.zero_grad()
        loss = training_loss(model, batch)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            elapsed = time.perf_counter() - started
            print(
                f"step {step:4d}  loss {loss.item():.4f}  {step / elapsed:.1f} steps/s", flush=True
            )


if __name__ == "__main__":
    main()
