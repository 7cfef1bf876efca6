# /// scenario
# suspect = "framework_overhead"
# cause = "cpu_contention"
# fix = "get the cores back: stop or move the other processes"
# severities = [3, 4, 6]  # processes of somebody else, each busy all the time
# neighbours = 1
# quick = true
# ///
"""Trains a CNN on images held in memory."""

from common import arguments, convolutions, random_images, sampled, sgd, train

if __name__ == "__main__":
    arguments(__doc__)
    model = convolutions(width=24)
    train(model, sgd(model), sampled(random_images(1024), 32, 90))
