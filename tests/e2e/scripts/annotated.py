"""A training loop whose author has named its steps and their parts."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import stepscope

EXPECTED_STEPS = 60


class Points(Dataset):
    def __len__(self):
        return 16 * EXPECTED_STEPS

    def __getitem__(self, index):
        return torch.full((8,), index / 1000), torch.ones(1)


def summarize_by_hand(values):
    """Work in Python, as loops with metrics of their own do."""
    total = 0.0
    for round_number in range(2000):
        for value in values:
            total += value * round_number
    return total


def main():
    parser = argparse.ArgumentParser(description="Fits a plane.")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Points(), batch_size=16, num_workers=arguments.workers)
    for number, (points, heights) in enumerate(loader):
        with stepscope.annotate(f"step_{number}"):
            with stepscope.annotate("Forward"):
                outputs = model(points)
            with stepscope.annotate("Loss"):
                loss = nn.functional.mse_loss(outputs, heights)
            with stepscope.annotate("Backward"):
                optimizer.zero_grad()
                loss.backward()
            update = stepscope.annotation_begin("Optimizer")
            optimizer.step()
            stepscope.annotation_end(update)
            summarize_by_hand(points.flatten().tolist())
            stepscope.scalar("loss", loss)


if __name__ == "__main__":
    main()
