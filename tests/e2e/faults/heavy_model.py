"""Planted fault, of a kind: none but the model, whose convolutions own the step."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SUSPECT = "model"
CAUSE = "compute"

BATCH = 80  # more than 200 core-milliseconds a step, on fast machines too


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def main():
    parser = argparse.ArgumentParser(description="Trains a deep CNN on images held in memory.")
    parser.add_argument("--steps", type=int, default=36)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    length = args.steps * BATCH
    dataset = TensorDataset(torch.randn(length, 3, 32, 32), torch.randint(0, 10, (length,)))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        block(3, 48), block(48, 96), block(96, 192), nn.Flatten(), nn.Linear(192 * 4 * 4, 10)
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
