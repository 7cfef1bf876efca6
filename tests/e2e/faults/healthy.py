"""Nothing is planted: two workers keep ahead of a model that owns the step."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "healthy"
CAUSE = "none"

IMAGES = 1024
BATCH = 24


class Images(Dataset):
    def __init__(self, length):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 256, size=(IMAGES, 3, 32, 32), dtype=np.uint8)
        self.labels = rng.integers(0, 10, size=IMAGES)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = self.images[index % IMAGES].astype(np.float32) / 255.0
        return torch.from_numpy(image), int(self.labels[index % IMAGES])


def main():
    parser = argparse.ArgumentParser(description="Trains a CNN on small images.")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Images(args.steps * BATCH), batch_size=BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 112, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(112, 112, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(112 * 8 * 8, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
