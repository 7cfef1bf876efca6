# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a compiled CNN on batches of one shape."""

import torch
from common import arguments, convolutions, random_images, sampled, sgd, train

if __name__ == "__main__":
    args = arguments(__doc__)
    model = torch.compile(convolutions(width=8 * round(4 * args.severity)), backend="aot_eager")
    train(model, sgd(model), sampled(random_images(), 24, 120))
