# /// scenario
# suspect = "framework_overhead"
# cause = ["evaluation", "logging"]
# fix = ["evaluate less often", "log histograms less often"]
# severities = [0.7, 1.0, 1.5]  # how often it evaluates and writes histograms
# ///
"""Estimates the load on turbine blades from wind and strain, with a small trainer of its own."""

import json
import os
import tempfile

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torchmetrics import MeanMetric


class LoadNet(nn.Module):
    def __init__(self, inputs=64, width=448, depth=4):
        super().__init__()
        self.lift = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 6)

    def forward(self, x):
        x = self.lift(x)
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.nn.functional.silu(layer(norm(x)))
        return self.out(x)


class EventFile:
    """Scalars and histograms as lines of JSON."""

    def __init__(self, folder):
        self.file = open(os.path.join(folder, "events.jsonl"), "w")

    def scalar(self, step, tag, value):
        self.file.write(json.dumps({"step": step, "tag": tag, "value": value}) + "\n")

    def histogram(self, step, tag, tensor, bins=64):
        values = tensor.detach().flatten().numpy()
        counts, edges = np.histogram(values, bins=bins)
        line = {"step": step, "tag": tag, "counts": counts.tolist(), "edges": edges.tolist()}
        line["mean"], line["std"] = float(values.mean()), float(values.std())
        self.file.write(json.dumps(line) + "\n")

    def close(self):
        self.file.close()


class Callback:
    def after_step(self, trainer):
        pass


class Histograms(Callback):
    def __init__(self, events, interval):
        self.events, self.interval = events, interval

    def after_step(self, trainer):
        if trainer.step % self.interval == 0:
            for name, parameter in trainer.model.named_parameters():
                self.events.histogram(trainer.step, f"weights/{name}", parameter)
                self.events.histogram(trainer.step, f"gradients/{name}", parameter.grad)


class HeldOut(Callback):
    def __init__(self, data, events, interval):
        self.data, self.events, self.interval = data, events, interval

    @torch.no_grad()
    def after_step(self, trainer):
        if trainer.step % self.interval:
            return
        trainer.model.eval()
        metric = MeanMetric()
        for x, y in zip(*(part.split(256) for part in self.data)):
            metric.update(trainer.criterion(trainer.model(x), y))
        self.events.scalar(trainer.step, "held_out", float(metric.compute()))
        trainer.model.train()


class Trainer:
    def __init__(self, model, data, events, callbacks, batch=256, lr=1e-3):
        self.model, self.data, self.events, self.callbacks = model, data, events, callbacks
        self.batch = batch
        self.criterion = nn.SmoothL1Loss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.step = 0
        self.meter = Throughput()

    def fit(self, steps):
        inputs, targets = self.data
        while self.step < steps:
            order = torch.randperm(len(inputs))
            for rows in order.split(self.batch):
                loss = self.criterion(self.model(inputs[rows]), targets[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % 20 == 0:
                    self.events.scalar(self.step, "loss", loss.item())
                for callback in self.callbacks:
                    callback.after_step(self)
                self.meter.update(len(rows))
                if self.step == steps:
                    break


def blades(count, mixing):
    inputs = torch.randn(count, 64)
    return inputs, torch.tanh(inputs @ mixing) + 0.05 * torch.randn(count, 6)


def main():
    args = arguments(__doc__)
    mixing = torch.randn(64, 6) / 8
    evaluate_every = 120 if args.fixed else max(1, round(6 / args.severity))
    histogram_every = 120 if args.fixed else max(1, round(2 / args.severity))
    with tempfile.TemporaryDirectory(prefix="blades") as folder:
        events = EventFile(folder)
        callbacks = [
            HeldOut(blades(6144, mixing), events, evaluate_every),
            Histograms(events, histogram_every),
        ]
        trainer = Trainer(LoadNet(), blades(16384, mixing), events, callbacks)
        trainer.fit(250)
        events.close()
    trainer.meter.report()


if __name__ == "__main__":
    main()
