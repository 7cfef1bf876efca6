# /// scenario
# suspect = "framework_overhead"
# cause = ["tiny_operators", "checkpoint"]
# stage = "dispatch"
# fix = [
#     "replace loops over elements by tensor operations: one module for the sequence",
#     "save less often",
# ]
# severities = [0.8, 1.0, 1.3]  # both: time steps, and how often it saves
# ///
"""Trains a recurrent language model, cell by cell, and saves it every few steps."""

import os
import tempfile
from pathlib import Path

import torch
from common import Throughput, arguments
from torch import nn

WORDS = 30_000
WIDTH = 64
BATCH = 8
STEPS = 120


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2 * WIDTH, WIDTH)
        self.gate = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, sequence):
        state = sequence.new_zeros(sequence.shape[1], WIDTH)
        states = []
        for vector in sequence:
            both = torch.cat([vector, state], dim=1)
            gate = torch.sigmoid(self.gate(both))
            state = gate * state + (1 - gate) * torch.tanh(self.inner(both))
            states.append(state)
        return torch.stack(states)


class Recurrent(nn.LSTM):
    def forward(self, sequence):
        return super().forward(sequence)[0]


def save(path, model, optimizer):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def main():
    args = arguments(__doc__)
    length = round(120 * args.severity)
    save_every = STEPS if args.fixed else max(1, round(6 / args.severity))
    words = nn.Embedding(WORDS, WIDTH).requires_grad_(False)
    cells = Recurrent(WIDTH, WIDTH) if args.fixed else Cells()
    model = nn.Sequential(words, cells, nn.Linear(WIDTH, 32))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        meter = Throughput()
        for step in range(1, STEPS + 1):
            text = torch.randint(0, WORDS, (length + 1, BATCH))
            optimizer.zero_grad()
            loss = criterion(model(text[:-1]).flatten(0, 1), text[1:].flatten() % 32)
            loss.backward()
            optimizer.step()
            if step % save_every == 0:
                save(Path(folder) / "model.pt", model, optimizer)
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
