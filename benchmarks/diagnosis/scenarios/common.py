"""Shared code of the training scripts: arguments, data, small models, the training loop.

It contains nothing that a script may wait for.
"""

import argparse
import os
import random
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

WARM_UP = 10
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def arguments(description, threads=1):
    """Parse the arguments and seed all generators; None leaves the threads to PyTorch."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if threads is not None:
        torch.set_num_threads(threads)
    return args


class Throughput:
    """Samples of all ranks per second after the warm-up, with all time between two steps."""

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
            self.samples += samples * RANKS

    def report(self, loss=None):
        """Print what was measured, on the first rank, and leave the other ranks."""
        seconds = self.end - self.start
        if RANK == 0:
            if loss is not None:
                print(f"final loss {loss.item():.4f}")
            print(
                f"{self.steps} steps of {self.samples / self.steps:.6g} samples: "
                f"{1e3 * seconds / self.steps:.4f} ms a step, "
                f"{self.samples / seconds:.1f} samples/s"
            )
        if dist.is_initialized():
            dist.destroy_process_group()


criterion = nn.CrossEntropyLoss()


def classify(model, inputs, labels):
    """Compute the loss of a classifier."""
    return criterion(model(inputs), labels)


def train(model, optimizer, batches, compute_loss=classify, *, after_step=None, warm_up=WARM_UP):
    """Train on batches, tuples of tensors, and report loss and throughput.

    Args:
        compute_loss: function of the model and the tensors of a batch.
        after_step: function of the number of the step, from 1, and its loss.
    """
    meter = Throughput(warm_up)
    step = 0
    for batch in batches:
        optimizer.zero_grad()
        loss = compute_loss(model, *batch)
        loss.backward()
        optimizer.step()
        step += 1
        if after_step is not None:
            after_step(step, loss)
        meter.update(len(batch[0]))
    meter.report(loss)


def sgd(model, lr=0.01, momentum=0.9):
    """Make the optimizer of most scripts."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)


def share(model):
    """Join the other ranks and average the gradients of a model over them."""
    dist.init_process_group("gloo")
    return DistributedDataParallel(model)


def sampled(tensors, batch, steps):
    """Yield batches of random rows of tensors in memory."""
    for _ in range(steps):
        rows = torch.randint(len(tensors[0]), (batch,))
        yield [tensor[rows] for tensor in tensors]


def random_images(count=512, size=32, classes=10):
    """Make images and labels in memory."""
    return torch.randn(count, 3, size, size), torch.randint(classes, (count,))


def random_vectors(count, width, classes=10):
    """Make vectors and labels in memory."""
    return torch.randn(count, width), torch.randint(classes, (count,))


class Samples(Dataset):
    """Dataset of a length, which is more than it keeps in memory."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


class Images(Samples):
    """Images as bytes in memory, scaled on access."""

    def __init__(self, length, size=32, seed=0):
        super().__init__(length)
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, size=(512, 3, size, size), dtype=np.uint8)
        self.labels = rng.integers(0, 10, size=512)

    def __getitem__(self, index):
        image = self.images[index % 512].astype(np.float32) / 255.0
        return torch.from_numpy(image), int(self.labels[index % 512])


def convolutions(channels=3, size=32, width=8, classes=10):
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


class TextEncoder(nn.Module):
    """Transformer layer on word vectors, and a linear classifier on their mean."""

    def __init__(self, words=2000, width=128, feed_forward=4, classes=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, feed_forward * width, 0.0, batch_first=True
        )
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.layer(self.words(tokens)).mean(dim=1))
