"""Trains and evaluates in turns, and writes when it did what, in epoch ns, as JSON.

python phased.py OUTPUT
"""

import json
import pathlib
import sys
import time
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
STEPS = 20
BATCH = 8
PAUSE_S = 0.3
periods = []


@contextmanager
def period(name):
    start = time.time_ns()
    yield
    periods.append((name, start, time.time_ns()))


def prepare_inputs():
    time.sleep(PAUSE_S)


def compute_loss(output):
    time.sleep(0.004)
    return output.sum()


def write_results():
    time.sleep(PAUSE_S)


def train(model, optimizer, loader):
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = compute_loss(model(batch))
        loss.backward()
        optimizer.step()


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        for (batch,) in loader:
            model(batch)
            time.sleep(0.01)
    model.train()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with period("before"):
        prepare_inputs()
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.ones(STEPS * BATCH, 16)), batch_size=BATCH)
    for _ in range(EPOCHS):
        with period("train"):
            train(model, optimizer, loader)
        with period("eval"):
            evaluate(model, loader)
    with period("after"):
        write_results()
    with pathlib.Path(sys.argv[1]).open("w") as output:
        json.dump(periods, output)


if __name__ == "__main__":
    main()
