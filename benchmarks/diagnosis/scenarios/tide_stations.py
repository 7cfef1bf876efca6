# /// scenario
# suspect = "data_pipeline"
# cause = "slow_reads"
# fix = "create an index on the table's station and day columns, or read it into memory once"
# severities = [0.7, 1.0, 1.5]  # rows of the table
# held_out = true
# ///
"""Forecasts of the tide at harbour stations, from a database of daily records."""

import pathlib
import sqlite3
import tempfile

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

STATIONS = 40
HISTORY = 6
PER_DAY = 48


def fill_database(path, rows, seed, index):
    rng = np.random.default_rng(seed)
    days = rows // STATIONS
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE levels (station INTEGER, day INTEGER, heights BLOB)")
    phase = rng.uniform(0, 6.28, size=STATIONS)
    hours = np.arange(PER_DAY) / 2
    for day in range(days):
        records = []
        for station in range(STATIONS):
            angle = 2 * np.pi * (24 * day + hours) / 12.42 + phase[station]
            heights = np.sin(angle) + 0.1 * rng.standard_normal(PER_DAY)
            records.append((station, day, heights.astype(np.float32).tobytes()))
        connection.executemany("INSERT INTO levels VALUES (?, ?, ?)", records)
    if index:
        connection.execute("CREATE INDEX by_station_and_day ON levels (station, day)")
    connection.commit()
    connection.close()
    return days


class TideRecords(Dataset):
    query = "SELECT heights FROM levels WHERE station = ? AND day BETWEEN ? AND ? ORDER BY day"

    def __init__(self, path, days, length):
        self.path, self.days, self.length = path, days, length
        self.connection = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.connection is None:
            self.connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        station = index % STATIONS
        first = (index * 7919) % (self.days - HISTORY)
        rows = self.connection.execute(self.query, (station, first, first + HISTORY)).fetchall()
        heights = np.frombuffer(b"".join(blob for (blob,) in rows), dtype=np.float32)
        heights = torch.from_numpy(heights.copy())
        return station, heights[: HISTORY * PER_DAY], heights[HISTORY * PER_DAY :]


class TideModel(nn.Module):
    def __init__(self, width=1120):
        super().__init__()
        self.station = nn.Embedding(STATIONS, 32)
        self.layers = nn.Sequential(
            nn.Linear(HISTORY * PER_DAY + 32, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, PER_DAY),
        )

    def forward(self, station, history):
        return self.layers(torch.cat([self.station(station), history], dim=1))


def train_step(model, optimizer, station, history, future):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.smooth_l1_loss(model(station, history), future)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    throughput = Throughput()
    for epoch in range(epochs):
        running = None
        for station, history, future in loader:
            loss = train_step(model, optimizer, station, history, future)
            running = loss if running is None else 0.95 * running + 0.05 * loss
            schedule.step()
            throughput.update(len(station))
        print(f"epoch {epoch + 1}/{epochs}: {running.item():.4f}")
    return throughput


def main():
    args = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tides.db"
        days = fill_database(path, int(20000 * args.severity), args.seed, index=args.fixed)
        loader = DataLoader(
            TideRecords(path, days, 105 * 64),
            batch_size=64,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        train(TideModel(), loader, epochs=2).report()


if __name__ == "__main__":
    main()
