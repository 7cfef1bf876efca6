# /// scenario
# suspect = "data_pipeline"
# cause = ["worker_startup", "logging"]
# fix = ["keep the workers: one loader with persistent_workers", "draw the figure less often"]
# severities = [0.7, 1.0, 1.4]  # 1 is 14 steps in an epoch
# ///
"""Predicts how well DNA primers bind, with a figure of the predictions after every epoch."""

import itertools
import random
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import torch
from common import Throughput, arguments
from matplotlib import pyplot as plt
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 24
K = 8
BATCH = 64
STEPS = 280


class Primers(Dataset):
    def __init__(self, count):
        self.primers = ["".join(random.choices("ACGT", k=LENGTH)) for _ in range(count)]
        self.binding = [
            (primer.count("G") + primer.count("C")) / LENGTH + random.gauss(0, 0.05)
            for primer in self.primers
        ]
        self.numbers = None

    def __len__(self):
        return len(self.primers)

    def __getitem__(self, index):
        primer = self.primers[index]
        words = [self.numbers[primer[i : i + K]] for i in range(LENGTH - K + 1)]
        return torch.tensor(words), self.binding[index]


def number_words(worker):
    """Gives a worker its table of all DNA words of length K."""
    words = map("".join, itertools.product("ACGT", repeat=K))
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.numbers = {word: number for number, word in enumerate(words)}


class Binding(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.word = nn.EmbeddingBag(4**K, width, sparse=True)
        self.head = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, words):
        return self.head(self.word(words)).squeeze(1)


def draw(path, predicted, measured):
    figure, axes = plt.subplots(figsize=(4, 4))
    axes.scatter(measured, predicted, s=4)
    axes.set_xlabel("measured")
    axes.set_ylabel("predicted")
    figure.savefig(path)
    plt.close(figure)


def main():
    args = arguments(__doc__, threads=None)
    per_epoch = round(14 / args.severity)
    epochs = STEPS // per_epoch
    loader = DataLoader(
        Primers(per_epoch * BATCH),
        BATCH,
        shuffle=True,
        num_workers=2,
        worker_init_fn=number_words,
        persistent_workers=args.fixed,
    )
    model = Binding()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    criterion = nn.MSELoss()
    meter = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(epochs):
            for words, binding in loader:
                predicted = model(words)
                loss = criterion(predicted, binding.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                meter.update(len(words))
            if not args.fixed or epoch == epochs - 1:
                draw(Path(folder) / f"{epoch}.png", predicted.tolist(), binding.tolist())
    meter.report(loss)


if __name__ == "__main__":
    main()
