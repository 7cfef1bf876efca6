"""Planted fault: the whole training state is written to disk, durably, every ten steps."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from torch import nn

SUSPECT = "framework_overhead"
CAUSE = "checkpoint"

EVERY = 10
WORDS = 200_000
WIDTH = 128
BATCH = 64


def save_checkpoint(path, model, optimizer, step):
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main():
    parser = argparse.ArgumentParser(description="Trains a classifier and checkpoints it.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--data", type=Path, help="where checkpoints go; default: a temp folder")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
    head = nn.Sequential(nn.Linear(WIDTH, 4096), nn.ReLU(), nn.Linear(4096, 1000))
    model = nn.ModuleDict({"words": words, "head": head})
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()

    with tempfile.TemporaryDirectory() as folder:
        path = (args.data or Path(folder)) / "checkpoint.pt"
        for step in range(1, args.steps + 1):
            tokens = torch.randint(0, WORDS, (BATCH, 16))
            labels = torch.randint(0, 1000, (BATCH,))
            optimizer.zero_grad()
            loss = criterion(head(words(tokens).mean(dim=1)), labels)
            loss.backward()
            optimizer.step()
            if step % EVERY == 0:
                save_checkpoint(path, model, optimizer, step)
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
