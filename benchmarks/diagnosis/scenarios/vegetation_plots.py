# /// scenario
# suspect = "data_pipeline"
# cause = "slow_collate"
# fix = "a cheaper collate function: look the labels up in a dictionary"
# severities = [0.7, 1.0, 1.4]  # species in the flora
# ///
"""Trains a species distribution model: which plants grow on a plot, from its climate."""

import argparse
import random
import string
from functools import partial

import torch
from common import Throughput
from torch import nn
from torch.utils.data import DataLoader, Dataset

PLOTS = 1500
VARIABLES = 96
BATCH = 32
STEPS = 220


def latin_names(count):
    """Invented binomials, no two alike."""
    names = set()
    while len(names) < count:
        genus = "".join(random.choices(string.ascii_lowercase, k=7)).capitalize()
        for _ in range(6):
            names.add(f"{genus} {''.join(random.choices(string.ascii_lowercase, k=8))}")
    return sorted(names)[:count]


class Survey(Dataset):
    """Species on each plot, as the botanists wrote them down."""

    def __init__(self, names):
        self.climate = torch.randn(PLOTS, VARIABLES)
        self.found = [random.sample(names, random.randint(14, 26)) for _ in range(PLOTS)]

    def __len__(self):
        return BATCH * STEPS

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


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.BCEWithLogitsLoss()
        self.meter = Throughput()

    def step(self, climate, present):
        loss = self.criterion(self.model(climate), present)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, loader):
        for climate, present in loader:
            loss = self.step(climate, present)
            self.meter.update(len(climate))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    names = latin_names(round(4000 * args.severity))
    numbers = {name: number for number, name in enumerate(names)} if args.fixed else None
    loader = DataLoader(
        Survey(names),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=partial(with_targets, names=names, numbers=numbers),
    )
    model = nn.Sequential(
        nn.Linear(VARIABLES, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
        nn.Linear(64, len(names)),
    )  # fmt: skip
    trainer = Trainer(model, lr=0.1)
    print(f"final loss {trainer.fit(loader):.4f}")
    trainer.meter.report()


if __name__ == "__main__":
    main()
