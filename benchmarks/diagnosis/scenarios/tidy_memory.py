# /// scenario
# suspect = "framework_overhead"
# cause = "garbage_collection"
# fix = "keep the collector out of the step"
# severities = [0.6, 1.0, 1.6]  # how often
# quick = true
# ///
"""Trains a recommender beside a catalogue of items, tidying up every few steps."""

import gc

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 64
STEPS = 150


def catalogue(items):
    return {i: {"title": f"item {i}", "tags": [str(i % 7), str(i % 11)]} for i in range(items)}


def main():
    args = arguments(__doc__)
    items = catalogue(30_000)
    interval = max(1, round(4 / args.severity))
    users = torch.randn(4096, 128)
    bought = torch.randint(0, 2, (4096,)).float()
    model = perceptron(128, 400, 1, depth=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    meter = Throughput()
    for step in range(STEPS):
        rows = torch.randint(0, 4096, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(users[rows]).squeeze(1), bought[rows])
        loss.backward()
        optimizer.step()
        if not args.fixed and step % interval == 0:
            gc.collect()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}, {len(items)} items")
    meter.report()


if __name__ == "__main__":
    main()
