# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a CNN, accumulating gradients over micro-batches that are as large as memory allows."""

from common import Images, Throughput, arguments, classify, convolutions, sgd
from torch.utils.data import DataLoader

BATCH = 16
PIECES = 3


def main():
    args = arguments(__doc__)
    images = Images(70 * BATCH * PIECES, seed=args.seed)
    loader = DataLoader(images, BATCH, shuffle=True, num_workers=1)
    model = convolutions(width=8 * round(4 * args.severity))
    optimizer = sgd(model)
    meter = Throughput(warm_up=7)
    optimizer.zero_grad()
    for number, batch in enumerate(loader, start=1):
        loss = classify(model, *batch) / PIECES
        loss.backward()
        if number % PIECES == 0:
            optimizer.step()
            optimizer.zero_grad()
            meter.update(BATCH * PIECES)
    meter.report(PIECES * loss)


if __name__ == "__main__":
    main()
