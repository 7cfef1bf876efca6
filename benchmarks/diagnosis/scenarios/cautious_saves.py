# /// scenario
# suspect = "framework_overhead"
# cause = "checkpoint"
# stage = "checkpoint"
# fix = "save less often"
# severities = [0.6, 1.0, 1.6]  # how often
# quick = true
# ///
"""Trains a tagger on frozen word vectors and saves its state every few steps."""

import os
import tempfile
from pathlib import Path

import torch
from common import Throughput, arguments, perceptron
from torch import nn

WORDS = 60_000
WIDTH = 128
BATCH = 64
STEPS = 150


def save(path, model, optimizer, step):
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main():
    args = arguments(__doc__)
    save_every = STEPS if args.fixed else max(1, round(6 / args.severity))
    words = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
    model = nn.Sequential(words, nn.Flatten(), perceptron(WIDTH, 256, 40))
    optimizer = torch.optim.Adam(model[2].parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        meter = Throughput()
        for step in range(1, STEPS + 1):
            tokens = torch.randint(0, WORDS, (BATCH, 1))
            optimizer.zero_grad()
            loss = criterion(model(tokens), tokens.squeeze(1) % 40)
            loss.backward()
            optimizer.step()
            if step % save_every == 0:
                save(Path(folder) / "last.pt", model, optimizer, step)
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
