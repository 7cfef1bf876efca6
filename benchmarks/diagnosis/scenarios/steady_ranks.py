# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ranks = 2
# ///
"""Trains a CNN on two ranks that have the same to do."""

from common import arguments, convolutions, random_images, sampled, sgd, share, train

if __name__ == "__main__":
    args = arguments(__doc__)
    model = share(convolutions(width=8 * round(4 * args.severity)))
    train(model, sgd(model, momentum=0), sampled(random_images(), 24, 110))
