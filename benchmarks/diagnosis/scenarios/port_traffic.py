# /// scenario
# suspect = "framework_overhead"
# cause = "straggler"
# stage = "rank 0"
# accept = ["framework_overhead/logging"]
# fix = "log histograms less often: what rank 0 writes, the others wait for"
# severities = [0.7, 1.0, 1.5]  # size of the model that is written about
# ranks = 2
# ///
"""Forecasts the traffic of ships in ports on two ranks; rank 0 keeps a journal."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from common import Throughput
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PORTS, DAYS = 60, 28
BATCH = 128
STEPS = 200


class Journal:
    """Histograms of all weights and gradients, a line each."""

    def __init__(self, path, interval):
        self.file = path.open("w")
        self.interval = interval

    def histogram(self, values):
        values = values.detach().flatten().numpy()
        counts, edges = np.histogram(values, bins=64)
        low, middle, high = np.percentile(values, [5, 50, 95])
        return {
            "counts": counts.tolist(),
            "edges": [round(float(edge), 6) for edge in edges],
            "percentiles": [float(low), float(middle), float(high)],
        }

    def write(self, step, model):
        if step % self.interval:
            return
        for name, parameter in model.named_parameters():
            line = {"step": step, "name": name, "weights": self.histogram(parameter)}
            line["gradients"] = self.histogram(parameter.grad)
            self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    first = dist.get_rank() == 0
    width = 16 * round(14 * args.severity)
    network = nn.Sequential(
        nn.Linear(PORTS * DAYS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, PORTS),
    )  # fmt: skip
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.HuberLoss()
    calls = torch.rand(PORTS, 4000).cumsum(dim=1).sin()
    meter = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", 100 if args.fixed else 1)
        for step in range(STEPS):
            days = torch.randint(4000 - DAYS, (BATCH,))
            past = torch.stack([calls[:, day : day + DAYS].flatten() for day in days.tolist()])
            loss = criterion(model(past), calls[:, days + DAYS].T)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if first:
                journal.write(step, network)
            meter.update(2 * BATCH)
    if first:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
