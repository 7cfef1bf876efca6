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
from common import arguments, perceptron, random_vectors, sampled, train
from torch import nn

criterion = nn.BCEWithLogitsLoss()


def catalogue(items):
    return {i: {"title": f"item {i}", "tags": [str(i % 7), str(i % 11)]} for i in range(items)}


def compute_loss(model, users, bought):
    return criterion(model(users).squeeze(1), bought.float())


def main():
    args = arguments(__doc__)
    items = catalogue(30_000)
    interval = max(1, round(4 / args.severity))

    def after_step(step, _):
        if not args.fixed and step % interval == 0:
            gc.collect()

    model = perceptron(128, 400, 1, depth=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = sampled(random_vectors(4096, 128, 2), 64, 150)
    train(model, optimizer, batches, compute_loss, after_step=after_step)
    print(f"{len(items)} items")


if __name__ == "__main__":
    main()
