# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "log every N steps"
# severities = [0.6, 1.0, 1.6]  # bytes that a line of the journal has
# ///
"""Fits demand curves; its journal has a line of every step, safe on the disk."""

import json
import os
import tempfile
from pathlib import Path

import torch
from common import Throughput, arguments, perceptron

BATCH = 64
STEPS = 260


class Journal:
    """A file of lines that survives a crash of the machine."""

    def __init__(self, path):
        self.file = path.open("w")

    def note(self, step, values):
        self.file.write(json.dumps({"step": step, "values": values}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def main():
    args = arguments(__doc__)
    interval = STEPS if args.fixed else 1
    noted = round(4000 * args.severity)
    model = perceptron(48, 160, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096, 48)
    targets = inputs[:, :24].cumsum(dim=1)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        journal = Journal(Path(folder) / "journal.jsonl")
        meter = Throughput()
        for step in range(STEPS):
            rows = torch.randint(0, len(inputs), (BATCH,))
            optimizer.zero_grad()
            residuals = model(inputs[rows]) - targets[rows]
            loss = residuals.square().mean()
            loss.backward()
            optimizer.step()
            if step % interval == 0:
                journal.note(step, residuals.detach().flatten()[:noted].tolist())
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
