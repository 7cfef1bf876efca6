"""Shared code of the training scripts: arguments, a throughput meter, small models.

It contains nothing that a script may wait for.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

WARM_UP = 10


def arguments(description):
    """Parse the arguments and seed all generators."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    return args


class Throughput:
    """Samples per second after the warm-up, including all time between two steps."""

    def __init__(self, warm_up=WARM_UP):
        self.warm_up = warm_up
        self.steps = self.samples = 0
        self.start = self.end = time.perf_counter()

    def update(self, samples):
        """Count a step; call it at the end of every training step."""
        self.end = time.perf_counter()
        if self.warm_up:
            self.warm_up -= 1
            self.start = self.end
        else:
            self.steps += 1
            self.samples += samples

    def report(self):
        seconds = self.end - self.start
        print(
            f"{self.steps} steps of {self.samples / self.steps:.6g} samples: "
            f"{1e3 * seconds / self.steps:.4f} ms a step, {self.samples / seconds:.1f} samples/s"
        )


def convolutions(channels, size, width, classes=10):
    """Build a small CNN; its cost is quadratic in the width."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (size // 4) ** 2, classes),
    )


def perceptron(inputs, width, outputs, depth=2):
    """Build linear layers of one width."""
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class TextClassifier(nn.Module):
    """Perceptron on the mean of word vectors."""

    def __init__(self, words, width=64, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.head = perceptron(width, 4 * width, classes)

    def forward(self, tokens):
        real = (tokens != 0).unsqueeze(-1)
        hidden = self.embedding(tokens) * real
        return self.head(hidden.sum(dim=1) / real.sum(dim=1).clamp(min=1))


class Images(Dataset):
    """Images as bytes in memory, scaled on access."""

    def __init__(self, length, size=32, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, size=(512, 3, size, size), dtype=np.uint8)
        self.labels = rng.integers(0, 10, size=512)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = self.images[index % 512].astype(np.float32) / 255.0
        return torch.from_numpy(image), int(self.labels[index % 512])
