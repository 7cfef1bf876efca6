# /// scenario
# suspect = "data_pipeline"
# cause = "worker_startup"
# stage = "starting"
# fix = "keep the workers alive between epochs: persistent workers"
# severities = [0.7, 1.0, 1.5]  # 1 is eight steps per epoch
# ///
"""Fine-tunes a CNN on a handful of images, for many short epochs."""

import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 16
STEPS = 160


def main():
    args = arguments(__doc__)
    steps = max(2, round(8 / args.severity))
    loader = DataLoader(
        Images(steps * BATCH, 32, args.seed),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=args.fixed,
    )
    model = convolutions(3, 32, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for epoch in range(STEPS // steps):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            meter.update(len(labels))
        if epoch % 10 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
