# /// scenario
# suspect = "framework_overhead"
# cause = "evaluation"
# fix = "validate less often"
# severities = [0.7, 1.0, 1.5]  # how often validation runs
# held_out = true
# ///
"""Scores stages of sleep from half-minute windows of EEG, with Lightning."""

import logging
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

STAGES = 5
SAMPLES = 600
CHANNELS = 3


def windows(count, rng):
    stages = rng.integers(0, STAGES, count)
    time = np.arange(SAMPLES) / 100
    frequency = np.array([18.0, 10.0, 6.0, 2.0, 14.0])[stages]
    phase = rng.random((count, CHANNELS, 1)) * 6.28
    signal = np.sin(6.283 * frequency[:, None, None] * time + phase)
    signal = signal + 3 * rng.standard_normal(signal.shape)
    return TensorDataset(torch.from_numpy(signal.astype(np.float32)), torch.from_numpy(stages))


class SleepNet(L.LightningModule):
    def __init__(self, width=48):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 25, stride=5, padding=12),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 7, padding=3),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(2 * width, 2 * width, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width, STAGES)
        self.train_accuracy = MulticlassAccuracy(STAGES)
        self.accuracy = MulticlassAccuracy(STAGES)

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.05)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        logits = self(x)
        self.accuracy.update(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_accuracy", self.accuracy)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Meter(L.Callback):
    def __init__(self):
        self.throughput = Throughput()

    def on_train_batch_start(self, trainer, module, batch, index):
        self.size = len(batch[0])

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.throughput.update(self.size)


def main():
    args = arguments(__doc__)
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rng = np.random.default_rng(args.seed)
    train = DataLoader(windows(2048, rng), batch_size=32, shuffle=True, drop_last=True)
    validation = DataLoader(windows(512, rng), batch_size=64)
    meter = Meter()
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=240,
        max_epochs=-1,
        val_check_interval=120 if args.fixed else max(1, round(6 / args.severity)),
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[meter],
    )
    trainer.fit(SleepNet(), train, validation)
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})
    meter.throughput.report()


if __name__ == "__main__":
    main()
