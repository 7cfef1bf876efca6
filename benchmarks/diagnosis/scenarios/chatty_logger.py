# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "log every N steps"
# severities = [0.6, 1.0, 1.6]  # lines a step
# ///
"""Trains a ranker and writes down what it thinks of every item."""

import logging
import tempfile

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 256
STEPS = 160

logger = logging.getLogger("ranker")


def report(step, scores, clicked, count):
    for item, (score, click) in enumerate(zip(scores[:count], clicked, strict=False)):
        logger.debug("step %d item %d score %.4f clicked %d", step, item, score, click)


def main():
    args = arguments(__doc__)
    features = torch.randn(4096, 128)
    clicked = (torch.rand(4096) < 0.3).float()
    model = perceptron(128, 256, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    count = round(1600 * args.severity)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        handler = logging.FileHandler(file.name)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        meter = Throughput()
        for step in range(STEPS):
            rows = torch.randint(0, 4096, (BATCH,))
            optimizer.zero_grad()
            scores = model(features[rows]).squeeze(1)
            loss = criterion(scores, clicked[rows])
            loss.backward()
            optimizer.step()
            if not args.fixed or step % 50 == 0:
                all_scores = scores.detach().repeat(count // BATCH + 1).tolist()
                report(step, all_scores, clicked[rows].repeat(count // BATCH + 1).tolist(), count)
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
