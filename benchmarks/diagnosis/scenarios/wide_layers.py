# /// scenario
# suspect = "communication"
# cause = "gradient_exchange"
# fix = "give each rank more to compute: a larger batch per rank"
# severities = [0.7, 1.0, 1.5]  # parameters
# ranks = 2
# quick = true
# ///
"""Trains wide linear layers on few samples per rank, data-parallel."""

import torch
from common import arguments, sampled, sgd, share, train
from torch import nn


def main():
    args = arguments(__doc__)
    width = 64 * round(36 * args.severity**0.5)
    model = share(nn.Sequential(nn.Linear(512, width), nn.ReLU(), nn.Linear(width, width)))
    batches = sampled([torch.randn(1024, 512)], 128 if args.fixed else 8, 50)
    train(model, sgd(model, 1e-3, 0), batches, lambda model, x: model(x).square().mean(), warm_up=5)


if __name__ == "__main__":
    main()
