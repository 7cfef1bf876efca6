# /// scenario
# healthy = true
# severities = [0.7, 1.0, 1.5]  # width of the model
# held_out = true
# ///
"""Scores of tasting panels from the chemistry of wines, every step logged to a JSON lines file."""

import json
import pathlib
import tempfile
import time

import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchmetrics import MeanSquaredError
from tqdm import tqdm

FEATURES = 48


class Journal:
    """One JSON object a line, written at once so that a dashboard can follow."""

    def __init__(self, path):
        self.file = open(path, "w")

    def log(self, **values):
        self.file.write(json.dumps({"time": time.time(), **values}) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


class MovingAverage:
    def __init__(self, decay=0.98):
        self.decay, self.value = decay, None

    def update(self, value):
        self.value = (
            value if self.value is None else self.decay * self.value + (1 - self.decay) * value
        )
        return self.value


def make_model(width):
    layers, inputs = [], FEATURES
    for _ in range(3):
        layers += [nn.Linear(inputs, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(0.1)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(width, 1))


def main():
    args = arguments(__doc__)
    chemistry = torch.randn(20000, FEATURES)
    scores = 85 + 5 * torch.tanh(chemistry[:, :6].sum(dim=1)) + torch.randn(20000)
    wines = TensorDataset(chemistry, (scores - 85) / 5)
    loader = DataLoader(
        wines,
        sampler=BatchSampler(RandomSampler(wines), batch_size=512, drop_last=True),
        batch_size=None,
    )
    model = make_model(int(640 * args.severity**0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=6 * len(loader))
    error = MeanSquaredError()
    smooth = MovingAverage()
    throughput = Throughput()
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(pathlib.Path(folder) / "metrics.jsonl")
        for epoch in range(6):
            error.reset()
            progress = tqdm(loader, desc=f"epoch {epoch}", leave=False, mininterval=1)
            for features, targets in progress:
                prediction = model(features).squeeze(1)
                loss = nn.functional.mse_loss(prediction, targets)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                error.update(prediction.detach(), targets)
                step += 1
                journal.log(
                    step=step,
                    loss=loss.item(),
                    smooth=smooth.update(loss.item()),
                    norm=norm.item(),
                    rate=scheduler.get_last_lr()[0],
                )
                progress.set_postfix(loss=f"{smooth.value:.3f}", refresh=False)
                throughput.update(len(targets))
            print(f"epoch {epoch}: rmse {error.compute().sqrt().item():.4f}")
        journal.close()
    throughput.report()


if __name__ == "__main__":
    main()
