# /// scenario
# suspect = "framework_overhead"
# cause = "evaluation"
# fix = "look at the held-out wines less often"
# severities = [0.7, 1.0, 1.6]  # held-out wines
# ///
"""Trains a regressor of scores, and looks at held-out wines as if it trained on them."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 256
STEPS = 300


def main():
    args = arguments(__doc__)
    look_every = 100 if args.fixed else 5
    count = round(6000 * args.severity)
    measures, scores = torch.randn(STEPS * BATCH, 64), torch.randn(STEPS * BATCH, 1)
    unseen, true_scores = torch.randn(count, 64), torch.randn(count, 1)
    loader = DataLoader(TensorDataset(measures, scores), batch_size=BATCH, shuffle=True)
    model = perceptron(64, 384, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    meter = Throughput()
    for step, (rows, targets) in enumerate(loader):
        loss = criterion(model(rows), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % look_every == 0:
            error = (model(unseen) - true_scores).abs().mean()  # with gradients, in training mode
        meter.update(len(rows))
    print(f"final loss {loss.item():.4f}, error {error.item():.3f}")
    meter.report()


if __name__ == "__main__":
    main()
