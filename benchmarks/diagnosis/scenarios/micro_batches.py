# /// scenario
# suspect = "framework_overhead"
# cause = "small_batch"
# fix = "larger micro-batches: give each operator more to do"
# severities = [0.5, 1.0, 2.0]  # 1 is two samples in a micro-batch
# ///
"""Trains a small residual network, accumulating gradients to a batch of 64."""

import torch
from common import Throughput, arguments, classify, random_vectors
from torch import nn

BATCH = 64


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(self, hidden):
        return hidden + self.body(hidden)


def main():
    args = arguments(__doc__)
    size = BATCH if args.fixed else max(1, round(2 / args.severity))
    inputs, labels = random_vectors(4096, 48)
    model = nn.Sequential(*[Residual(48) for _ in range(6)], nn.Linear(48, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meter = Throughput(warm_up=6)
    for _ in range(60):
        optimizer.zero_grad()
        for rows in torch.randint(0, 4096, (BATCH,)).split(size):
            loss = classify(model, inputs[rows], labels[rows]) * len(rows) / BATCH
            loss.backward()
        optimizer.step()
        meter.update(BATCH)
    meter.report(loss)


if __name__ == "__main__":
    main()
