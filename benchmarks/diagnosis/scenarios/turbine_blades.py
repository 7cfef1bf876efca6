# /// scenario
# suspect = "framework_overhead"
# cause = ["evaluation", "logging"]
# fix = ["evaluate less often", "log histograms less often"]
# severities = [0.7, 1.0, 1.5]  # how often it evaluates and writes histograms
# ///
"""Estimates the load on turbine blades from wind and strain, and logs weights and gradients."""

import json
import tempfile

import numpy as np
import torch
from common import arguments, train
from torch import nn
from torchmetrics import MeanMetric

BATCH = 256
EPOCHS = 4


class LoadNet(nn.Module):
    def __init__(self, inputs=64, width=448, depth=4):
        super().__init__()
        self.lift = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 6)

    def forward(self, x):
        x = self.lift(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + torch.nn.functional.silu(layer(norm(x)))
        return self.out(x)


class EventFile:
    """Scalars and histograms as lines of JSON."""

    def __init__(self, file):
        self.file = file

    def scalar(self, step, tag, value):
        self.file.write(json.dumps({"step": step, "tag": tag, "value": value}) + "\n")

    def histogram(self, step, tag, tensor, bins=64):
        values = tensor.detach().flatten().numpy()
        counts, edges = np.histogram(values, bins=bins)
        line = {"step": step, "tag": tag, "counts": counts.tolist(), "edges": edges.tolist()}
        line["mean"], line["std"] = float(values.mean()), float(values.std())
        self.file.write(json.dumps(line) + "\n")


criterion = nn.SmoothL1Loss()


def compute_loss(model, inputs, targets):
    return criterion(model(inputs), targets)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    metric = MeanMetric()
    for x, y in zip(*(part.split(256) for part in data), strict=True):
        metric.update(criterion(model(x), y))
    model.train()
    return float(metric.compute())


def blades(count, mixing):
    inputs = torch.randn(count, 64)
    return inputs, torch.tanh(inputs @ mixing) + 0.05 * torch.randn(count, 6)


def shuffled(inputs, targets):
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            yield inputs[rows], targets[rows]


def main():
    args = arguments(__doc__)
    mixing = torch.randn(64, 6) / 8
    evaluate_every = 120 if args.fixed else max(1, round(6 / args.severity))
    histogram_every = 120 if args.fixed else max(1, round(2 / args.severity))
    held_out = blades(6144, mixing)
    model = LoadNet()
    with tempfile.TemporaryFile("w") as file:
        events = EventFile(file)

        def after_step(step, loss):
            if step % 20 == 0:
                events.scalar(step, "loss", loss.item())
            if step % evaluate_every == 0:
                events.scalar(step, "held_out", evaluate(model, held_out))
            if step % histogram_every == 0:
                for name, parameter in model.named_parameters():
                    events.histogram(step, f"weights/{name}", parameter)
                    events.histogram(step, f"gradients/{name}", parameter.grad)

        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batches = shuffled(*blades(16_384, mixing))
        train(model, optimizer, batches, compute_loss, after_step=after_step)


if __name__ == "__main__":
    main()
