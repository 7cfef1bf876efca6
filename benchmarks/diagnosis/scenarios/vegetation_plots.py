# /// scenario
# suspect = "data_pipeline"
# cause = "slow_collate"
# fix = "a cheaper collate function: look the labels up in a dictionary"
# severities = [0.7, 1.0, 1.4]  # species in the flora
# ///
"""Trains a species distribution model: which plants grow on a plot, from its climate."""

import random
import string
from functools import partial

import torch
from common import Samples, arguments, sgd, train
from torch import nn
from torch.utils.data import DataLoader

PLOTS = 1500
VARIABLES = 96
BATCH = 32


def latin_names(count):
    """Invented binomials, no two alike."""
    names = set()
    while len(names) < count:
        genus = "".join(random.choices(string.ascii_lowercase, k=7)).capitalize()
        for _ in range(6):
            names.add(f"{genus} {''.join(random.choices(string.ascii_lowercase, k=8))}")
    return sorted(names)[:count]


class Survey(Samples):
    """Species on each plot, as the botanists wrote them down."""

    def __init__(self, length, names):
        super().__init__(length)
        self.climate = torch.randn(PLOTS, VARIABLES)
        self.found = [random.sample(names, random.randint(14, 26)) for _ in range(PLOTS)]

    def __getitem__(self, index):
        return self.climate[index % PLOTS], self.found[index % PLOTS]


def with_targets(plots, names, numbers=None):
    climate = torch.stack([plot[0] for plot in plots])
    present = torch.zeros(len(plots), len(names))
    for row, (_, species) in enumerate(plots):
        if numbers is None:
            columns = [names.index(name) for name in species]
        else:
            columns = [numbers[name] for name in species]
        present[row, columns] = 1.0
    return climate, present


criterion = nn.BCEWithLogitsLoss()


def compute_loss(model, climate, present):
    return criterion(model(climate), present)


def main():
    args = arguments(__doc__, threads=None)
    names = latin_names(round(4000 * args.severity))
    numbers = {name: number for number, name in enumerate(names)} if args.fixed else None
    collate = partial(with_targets, names=names, numbers=numbers)
    survey = Survey(220 * BATCH, names)
    loader = DataLoader(survey, BATCH, shuffle=True, num_workers=2, collate_fn=collate)
    model = nn.Sequential(
        nn.Linear(VARIABLES, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, len(names)),
    )  # fmt: skip
    train(model, sgd(model, 0.1), loader, compute_loss)


if __name__ == "__main__":
    main()
