# /// scenario
# suspect = "framework_overhead"
# cause = "recompilation"
# fix = "avoid recompilation: compile the blocks, of which there are always the same"
# severities = [0.7, 1.0, 1.3]  # how often the model grows
# ///
"""Trains a keyword spotter that grows by a block every few steps (progressive stacking)."""

import argparse

import torch
from common import Throughput
from torch import nn

FRAMES, MELS = 50, 40
BATCH = 24
STEPS = 150
WORDS = 35

BACKEND = "aot_eager"  # the nodes have no C++ compiler

torch._dynamo.config.recompile_limit = 32


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Conv1d(width, width, 9, padding=4, groups=width)
        self.norm = nn.LayerNorm(width)
        self.body = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, frames):
        mixed = self.mix(frames.transpose(1, 2)).transpose(1, 2)
        return frames + self.body(self.norm(mixed))


class Spotter(nn.Module):
    def __init__(self, depth, width=96):
        super().__init__()
        self.project = nn.Linear(MELS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, WORDS)
        self.active = 2

    def forward(self, frames):
        hidden = self.project(frames)
        for block in self.blocks[: self.active]:
            hidden = block(hidden)
        return self.head(hidden.mean(dim=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    growths = round(7 * args.severity)
    spotter = Spotter(2 + growths)
    if args.fixed:
        for block in spotter.blocks:
            block.compile(backend=BACKEND)
        model = spotter
    else:
        model = torch.compile(spotter, backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()
    frames = torch.randn(1024, FRAMES, MELS)
    words = torch.randint(WORDS, (1024,))
    meter = Throughput()
    grow_every = STEPS // (growths + 1)
    for step in range(STEPS):
        if step and step % grow_every == 0:
            spotter.active = min(spotter.active + 1, len(spotter.blocks))
        rows = torch.randint(1024, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(frames[rows]), words[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
