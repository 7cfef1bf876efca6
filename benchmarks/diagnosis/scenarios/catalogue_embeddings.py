# /// scenario
# suspect = "model"
# cause = "optimizer"
# stage = "optimizer"
# fix = "update only what changed: sparse embedding with SparseAdam"
# severities = [0.6, 1.0, 1.6]  # rows of the table
# quick = true
# ///
"""Trains embeddings of a large catalogue from baskets of items."""

import torch
from common import Throughput, arguments
from torch import nn

WIDTH = 32
BATCH = 256
STEPS = 120


class Baskets(nn.Module):
    def __init__(self, items, sparse):
        super().__init__()
        self.items = nn.Embedding(items, WIDTH, sparse=sparse)

    def forward(self, first, second):
        return (self.items(first) * self.items(second)).sum(dim=1)


def main():
    args = arguments(__doc__)
    items = round(80_000 * args.severity)
    model = Baskets(items, args.fixed)
    kind = torch.optim.SparseAdam if args.fixed else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    meter = Throughput()
    for _ in range(STEPS):
        first, second = torch.randint(0, items, (2, BATCH))
        together = (torch.rand(BATCH) < 0.5).float()
        optimizer.zero_grad()
        loss = criterion(model(first, second), together)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
