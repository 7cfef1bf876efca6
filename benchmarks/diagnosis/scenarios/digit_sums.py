# /// scenario
# suspect = "framework_overhead"
# cause = "small_batch"
# fix = "a larger batch: give each operator more to do"
# severities = [0.7, 1.0, 1.5]  # layers
# ///
"""Trains a small transformer to add numbers, on batches that look large enough."""

import torch
from common import Throughput, arguments
from torch import nn

BATCH = 32
STEPS = 300
DIGITS = 6


class Adder(nn.Module):
    def __init__(self, layers, width=24):
        super().__init__()
        self.tokens = nn.Embedding(10, width)
        self.places = nn.Parameter(torch.zeros(2 * DIGITS, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, digits):
        hidden = self.tokens(digits) + self.places
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden[:, :DIGITS])


def main():
    args = arguments(__doc__)
    batch = 16 * BATCH if args.fixed else BATCH
    first = torch.randint(0, 10**DIGITS // 2, (8192,))
    second = torch.randint(0, 10**DIGITS // 2, (8192,))
    powers = 10 ** torch.arange(DIGITS - 1, -1, -1)
    digits = torch.cat([first[:, None] // powers % 10, second[:, None] // powers % 10], dim=1)
    sums = (first + second)[:, None] // powers % 10
    model = Adder(round(6 * args.severity))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for _ in range(STEPS if not args.fixed else STEPS // 3):
        rows = torch.randint(0, 8192, (batch,))
        optimizer.zero_grad()
        loss = criterion(model(digits[rows]).flatten(0, 1), sums[rows].flatten())
        loss.backward()
        optimizer.step()
        meter.update(batch)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
