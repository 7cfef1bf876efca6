# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# quick = true
# ///
"""Trains a CNN on images that two workers prepare well ahead."""

from common import Images, arguments, convolutions, sgd, train
from torch.utils.data import DataLoader

BATCH = 24


def main():
    args = arguments(__doc__)
    loader = DataLoader(Images(130 * BATCH, seed=args.seed), BATCH, shuffle=True, num_workers=2)
    model = convolutions(width=8 * round(4 * args.severity))
    train(model, sgd(model), loader)


if __name__ == "__main__":
    main()
