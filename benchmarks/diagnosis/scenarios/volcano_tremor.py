# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# fix = "decompress the archived waveforms once and keep the arrays"
# severities = [0.7, 1.0, 1.5]  # how finely the archive is sampled
# held_out = true
# ///
"""Lightning training of a network that tells volcanic tremor from other signals of a seismometer."""

import logging
import lzma
import warnings

import lightning as L
import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CLASSES = 5
POINTS = 1000
FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 2}, {"id": lzma.FILTER_LZMA2, "preset": 1}]


def pack(trace):
    """The archive's format: 16-bit counts, differences, LZMA."""
    return lzma.compress(trace.astype("<i2").tobytes(), lzma.FORMAT_RAW, filters=FILTERS)


def unpack(record, oversampling):
    counts = np.frombuffer(lzma.decompress(record, lzma.FORMAT_RAW, filters=FILTERS), dtype="<i2")
    trace = counts.reshape(3, POINTS, oversampling).astype(np.float32).mean(axis=2)
    trace -= trace.mean(axis=1, keepdims=True)
    return trace / (trace.std() + 1e-6)


def record_archive(size, oversampling, rng):
    points = POINTS * oversampling
    time = np.linspace(0, 60, points)
    records, kinds = [], []
    for _ in range(size):
        kind = int(rng.integers(CLASSES))
        tremor = np.sin(2 * np.pi * (0.5 + kind) * time + rng.uniform(0, 6, (3, 1)))
        trace = 300 * tremor + rng.normal(0, 120, (3, points))
        records.append(pack(trace))
        kinds.append(kind)
    return records, kinds


class Seismograms(Dataset):
    def __init__(self, records, kinds, oversampling, in_memory=False):
        self.records, self.kinds, self.oversampling = records, kinds, oversampling
        self.traces = [unpack(record, oversampling) for record in records] if in_memory else None

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        if self.traces is not None:
            trace = self.traces[index]
        else:
            trace = unpack(self.records[index], self.oversampling)
        return torch.from_numpy(trace), self.kinds[index]


class TremorNet(L.LightningModule):
    def __init__(self, steps, width=18):
        super().__init__()
        self.steps = steps
        self.body = nn.Sequential(
            nn.Conv1d(3, width, 9, stride=2, padding=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 9, stride=2, padding=4),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Conv1d(2 * width, 4 * width, 9, stride=2, padding=4),
            nn.BatchNorm1d(4 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(4 * width, CLASSES),
        )
        self.accuracy = MulticlassAccuracy(CLASSES)

    def training_step(self, batch, batch_idx):
        traces, kinds = batch
        scores = self.body(traces)
        if batch_idx % 20 == 0:
            self.accuracy.update(scores.detach(), kinds)
        return nn.functional.cross_entropy(scores, kinds)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class Pace(L.Callback):
    def __init__(self):
        self.throughput = Throughput()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.throughput.update(len(batch[0]))


def main():
    args = arguments(__doc__)
    oversampling = round(11 * args.severity)
    steps, batch_size = 210, 32
    records, kinds = record_archive(192, oversampling, np.random.default_rng(args.seed))
    dataset = Seismograms(records, kinds, oversampling, in_memory=args.fixed)
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=RandomSampler(dataset, replacement=True, num_samples=steps * batch_size),
        num_workers=2,
        persistent_workers=True,
    )
    pace = Pace()
    module = TremorNet(steps)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[pace],
    )
    trainer.fit(module, loader)
    print(f"accuracy {float(module.accuracy.compute()):.3f}")
    pace.throughput.report()


if __name__ == "__main__":
    main()
