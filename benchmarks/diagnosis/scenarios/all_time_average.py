# /// scenario
# suspect = "framework_overhead"
# cause = "memory_leak"
# fix = "keep a running sum instead of everything that was ever seen"
# severities = [0.6, 1.0, 1.6]  # what is kept of a step
# ///
"""Trains an encoder and follows the spread of its features since the beginning."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 64
WIDTH = 256
STEPS = 200


def main():
    args = arguments(__doc__)
    inputs = torch.randn(4096, 128)
    labels = torch.randint(0, 10, (4096,))
    encoder = perceptron(128, 256, WIDTH)
    model = nn.Sequential(encoder, nn.Linear(WIDTH, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    kept = round(128 * args.severity)
    history, count, mean = [], 0, torch.zeros(WIDTH)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 4096, (BATCH,))
        optimizer.zero_grad()
        features = encoder(inputs[rows])
        loss = criterion(model[1](features), labels[rows])
        loss.backward()
        optimizer.step()
        seen = features.detach().repeat(4, 1)[:kept]
        if args.fixed:
            count += len(seen)
            mean += (seen - mean).sum(dim=0) / count
        else:
            history.append(seen)
            everything = torch.cat(history)
            mean, count = everything.mean(dim=0), len(everything)
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}, mean {mean.norm():.3f} of {count}")
    meter.report()


if __name__ == "__main__":
    main()
