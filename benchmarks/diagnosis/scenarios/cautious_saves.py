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
from common import arguments, perceptron, train
from torch import nn

WORDS = 60_000
WIDTH = 128
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
    tokens = (torch.randint(WORDS, (64, 1)) for _ in range(STEPS))
    with tempfile.TemporaryDirectory() as folder:

        def after_step(step, _):
            if step % save_every == 0:
                save(Path(folder) / "last.pt", model, optimizer, step)

        batches = ((words, words.squeeze(1) % 40) for words in tokens)
        train(model, optimizer, batches, after_step=after_step)


if __name__ == "__main__":
    main()
