# /// scenario
# suspect = "framework_overhead"
# cause = "evaluation"
# fix = "evaluate less often"
# severities = [0.6, 1.0, 1.6]  # how often
# quick = true
# ///
"""Trains a CNN and validates it every few steps."""

import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 16
STEPS = 160


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum(
        int((model(images[rows]).argmax(dim=1) == labels[rows]).sum())
        for rows in torch.arange(len(images)).split(64)
    )
    model.train()
    return right / len(images)


def main():
    args = arguments(__doc__)
    validate_every = 80 if args.fixed else max(1, round(5 / args.severity))
    loader = DataLoader(
        Images(STEPS * BATCH, 32, args.seed), batch_size=BATCH, shuffle=True, num_workers=1
    )
    unseen, truth = torch.rand(512, 3, 32, 32), torch.randint(0, 10, (512,))
    model = convolutions(3, 32, 12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for step, (images, labels) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % validate_every == 0:
            share = accuracy(model, unseen, truth)
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}, {share:.1%} right")
    meter.report()


if __name__ == "__main__":
    main()
