"""Train a small model on loaded batches at a steady rate, until a file exists.

python benchmarks/workloads/paced_training.py END --rate 200
"""

import argparse
import time
from pathlib import Path

import torch

BATCHES_PER_EPOCH = 1000


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * BATCHES_PER_EPOCH

    def __getitem__(self, index):
        return torch.full((16,), index / len(self))


def train(end, rate):
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Points(), batch_size=4)
    next_s = time.monotonic()
    while not end.exists():
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            next_s = max(next_s + 1 / rate, time.monotonic() - 1)
            time.sleep(max(0.0, next_s - time.monotonic()))
            if end.exists():
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("end", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="steps per second")
    arguments = parser.parse_args()
    train(arguments.end, arguments.rate)


if __name__ == "__main__":
    main()
