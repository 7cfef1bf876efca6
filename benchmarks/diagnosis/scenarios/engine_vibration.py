# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "draw the figures less often"
# severities = [0.7, 1.0, 1.5]  # how often the figures are drawn
# held_out = true
# ///
"""Finds faults of engines in short recordings of their vibration."""

import collections
import math
import os
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from common import Throughput, arguments
from torch import nn
from tqdm import tqdm

FAULTS = ["none", "bearing", "shaft", "gear", "mount", "belt"]
LENGTH = 512
BATCH = 32
STEPS = 240


def recordings(count, rng):
    labels = rng.integers(0, len(FAULTS), count)
    time = np.arange(LENGTH) / LENGTH
    waves = np.empty((count, 1, LENGTH), dtype=np.float32)
    for row, label in enumerate(labels):
        base = 12 + 3 * rng.standard_normal()
        wave = np.sin(2 * math.pi * base * time)
        wave += 0.5 * np.sin(2 * math.pi * base * (label + 2) * time + rng.random())
        waves[row, 0] = wave + 0.4 * rng.standard_normal(LENGTH)
    return torch.from_numpy(waves), torch.from_numpy(labels)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(width, width, 5, padding=2)
        self.second = nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return F.relu(x + self.norm(self.second(F.relu(self.first(x)))))


class FaultNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, stride=4, padding=4)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(3)])
        self.head = nn.Linear(width, len(FAULTS))

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean(dim=-1))


def draw_report(path, history, waves, logits, labels):
    """One page: the loss so far, a recording, its spectrum and the confusion of the last batch."""
    guesses = logits.argmax(dim=1)
    table = np.zeros((len(FAULTS), len(FAULTS)))
    np.add.at(table, (labels.numpy(), guesses.numpy()), 1)
    figure, axes = plt.subplots(2, 2, figsize=(9, 7))
    axes[0, 0].plot(history["loss"], label="loss")
    axes[0, 0].plot(history["accuracy"], label="accuracy")
    axes[0, 0].legend()
    axes[0, 1].plot(waves[0, 0].numpy())
    axes[0, 1].set_title(f"{FAULTS[labels[0]]} / {FAULTS[guesses[0]]}")
    axes[1, 0].specgram(waves[0, 0].numpy(), NFFT=64, noverlap=48)
    axes[1, 1].imshow(table)
    axes[1, 1].set_xticks(range(len(FAULTS)), FAULTS, rotation=45)
    axes[1, 1].set_yticks(range(len(FAULTS)), FAULTS)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    waves, labels = recordings(2048, rng)
    folder = tempfile.TemporaryDirectory(prefix="vibration")
    figure_every = 120 if args.fixed else max(1, round(12 / args.severity))

    model = FaultNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    history = collections.defaultdict(list)
    meter = Throughput()
    bar = tqdm(range(1, STEPS + 1), mininterval=2)
    for step in bar:
        rows = torch.randint(len(waves), (BATCH,))
        x, y = waves[rows], labels[rows]
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        history["loss"].append(loss.item())
        history["accuracy"].append((logits.argmax(1) == y).float().mean().item())
        if step % figure_every == 0:
            path = os.path.join(folder.name, f"step{step:05d}.png")
            draw_report(path, history, x, logits.detach(), y)
            bar.set_postfix(loss=history["loss"][-1])
        meter.update(BATCH)
    meter.report()
    folder.cleanup()


if __name__ == "__main__":
    main()
