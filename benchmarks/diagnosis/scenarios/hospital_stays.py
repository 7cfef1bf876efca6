# /// scenario
# suspect = "data_pipeline"
# cause = "slow_reads"
# fix = "faster reads: an index on the table, so that a query does not scan all of it"
# severities = [0.6, 1.0, 1.6]  # stays in the database
# ///
"""Trains a GRU with Lightning on the measurements of hospital stays, kept in SQLite."""

import logging
import sqlite3
import tempfile
import warnings
from pathlib import Path

import lightning
import numpy as np
import torch
from common import Samples, Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader

HOURS = 24
ITEMS = 16
ROWS = 100
BATCH = 16

logging.getLogger("lightning").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


def fill(path, stays, seed, index):
    rng = np.random.default_rng(seed)
    rows = stays * ROWS
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE measurement (stay INTEGER, hour INTEGER, item INTEGER, value REAL)"
        )
        database.executemany(
            "INSERT INTO measurement VALUES (?, ?, ?, ?)",
            zip(
                rng.permutation(np.arange(rows) % stays).tolist(),
                rng.integers(0, HOURS, rows).tolist(),
                rng.integers(0, ITEMS, rows).tolist(),
                rng.standard_normal(rows).tolist(),
                strict=True,
            ),
        )
        if index:
            database.execute("CREATE INDEX of_stay ON measurement (stay)")


class Stays(Samples):
    def __init__(self, length, path, stays):
        super().__init__(length)
        self.path = path
        self.stays = stays
        self.database = None

    def __getitem__(self, index):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        rows = self.database.execute(
            "SELECT hour, item, value FROM measurement WHERE stay = ?", (index % self.stays,)
        ).fetchall()
        grid = np.zeros((HOURS, ITEMS), dtype=np.float32)
        hours, items, values = zip(*rows, strict=True)
        grid[hours, items] = values
        return torch.from_numpy(grid), np.float32(grid[-1, 0] > 0)


class Mortality(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(ITEMS, 64, batch_first=True)
        self.head = nn.Linear(64, 1)
        self.criterion = nn.BCEWithLogitsLoss()

    def forward(self, grid):
        return self.head(self.encoder(grid)[1][-1]).squeeze(1)

    def training_step(self, batch, number):
        grid, died = batch
        return self.criterion(self(grid), died)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Speed(lightning.Callback):
    def __init__(self):
        self.meter = Throughput()

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.meter.update(len(batch[1]))


def main():
    args = arguments(__doc__, threads=None)
    stays = round(500 * args.severity)
    speed = Speed()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[speed],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stays.sqlite"
        fill(path, stays, args.seed, index=args.fixed)
        dataset = Stays(200 * BATCH, path, stays)
        trainer.fit(Mortality(), DataLoader(dataset, BATCH, shuffle=True, num_workers=2))
    speed.meter.report()


if __name__ == "__main__":
    main()
