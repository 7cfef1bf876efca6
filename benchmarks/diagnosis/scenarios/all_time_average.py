# /// scenario
# suspect = "framework_overhead"
# cause = "memory_leak"
# fix = "keep a running sum instead of everything that was ever seen"
# severities = [0.6, 1.0, 1.6]  # what is kept of a step
# quick = true
# ///
"""Trains an encoder and follows the spread of its features since the beginning."""

import torch
from common import Throughput, arguments, criterion, perceptron, random_vectors, sampled
from torch import nn

BATCH = 64
WIDTH = 256


def main():
    args = arguments(__doc__)
    examples = random_vectors(4096, 128)
    encoder = perceptron(128, 256, WIDTH)
    model = nn.Sequential(encoder, nn.Linear(WIDTH, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    feature_count = round(128 * args.severity)
    history, count, mean = [], 0, torch.zeros(WIDTH)
    meter = Throughput()
    for inputs, labels in sampled(examples, BATCH, 200):
        optimizer.zero_grad()
        features = encoder(inputs)
        loss = criterion(model[1](features), labels)
        loss.backward()
        optimizer.step()
        rows_features = features.detach().repeat(4, 1)[:feature_count]
        if args.fixed:
            count += len(rows_features)
            mean += (rows_features - mean).sum(dim=0) / count
        else:
            history.append(rows_features)
            all_features = torch.cat(history)
            mean, count = all_features.mean(dim=0), len(all_features)
        meter.update(BATCH)
    print(f"mean {mean.norm():.3f} of {count}")
    meter.report(loss)


if __name__ == "__main__":
    main()
