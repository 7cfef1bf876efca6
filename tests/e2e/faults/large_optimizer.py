"""Planted fault: Adam updates a whole embedding table of which each batch touches a sliver.

The forward and backward passes are small; the optimizer walks the table and its two moments.
"""

import argparse

import torch
from torch import nn

SUSPECT = "model"
CAUSE = "optimizer"

ITEMS = 250_000
WIDTH = 32
BATCH = 256
HISTORY = 20


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.tower = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))

    def forward(self, history, candidate):
        user = self.tower(self.items(history).mean(dim=1))
        return (user * self.items(candidate)).sum(dim=1)


def main():
    parser = argparse.ArgumentParser(description="Trains a click model with a large item table.")
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = ClickModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()

    for _ in range(args.steps):
        history = torch.randint(0, ITEMS, (BATCH, HISTORY))
        candidate = torch.randint(0, ITEMS, (BATCH,))
        clicked = torch.randint(0, 2, (BATCH,)).float()
        optimizer.zero_grad()
        loss = criterion(model(history, candidate), clicked)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
