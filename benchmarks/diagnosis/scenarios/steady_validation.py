# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# quick = true
# ///
"""Trains a CNN for two epochs, each followed by a validation and a checkpoint."""

import tempfile
from pathlib import Path

import torch
from common import Images, Throughput, arguments, classify, convolutions
from torch.utils.data import DataLoader

BATCH = 24
STEPS = 70


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum(int((model(images).argmax(dim=1) == labels).sum()) for images, labels in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    args = arguments(__doc__)
    options = {"num_workers": 2, "persistent_workers": True}
    training = Images(STEPS * BATCH, seed=args.seed)
    train_loader = DataLoader(training, BATCH, shuffle=True, **options)
    validation_loader = DataLoader(Images(256, seed=args.seed + 1), 64, **options)
    model = convolutions(width=8 * round(4 * args.severity))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meter = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(2):
            for batch in train_loader:
                optimizer.zero_grad()
                loss = classify(model, *batch)
                loss.backward()
                optimizer.step()
                meter.update(BATCH)
            print(f"epoch {epoch}: {accuracy(model, validation_loader):.1%} right")
            torch.save(model.state_dict(), Path(folder) / f"{epoch}.pt")
    meter.report(loss)


if __name__ == "__main__":
    main()
