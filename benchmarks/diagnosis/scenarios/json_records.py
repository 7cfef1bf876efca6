# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# stage = "decode"
# fix = "decode once and cache the result in an array"
# severities = [0.7, 1.0, 1.5]  # measurements per record
# ///
"""Trains a regressor on sensor records that are kept as lines of JSON."""

import json

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS = 400
BATCH = 32
STEPS = 150


class SensorLog(Dataset):
    def __init__(self, length, points, cached):
        values = np.random.standard_normal((RECORDS, points))
        self.lines = [
            json.dumps({"points": [{"at": i, "value": v} for i, v in enumerate(row)]})
            for row in values.tolist()
        ]
        self.cache = np.stack([self.record(i) for i in range(RECORDS)]) if cached else None
        self.length = length

    def __len__(self):
        return self.length

    def record(self, row):
        points = json.loads(self.lines[row])["points"]
        return np.array([point["value"] for point in points], dtype=np.float32)

    def __getitem__(self, index):
        row = index % RECORDS
        values = self.record(row) if self.cache is None else self.cache[row]
        return torch.from_numpy(values), values.mean()


def main():
    args = arguments(__doc__)
    points = round(1600 * args.severity)
    loader = DataLoader(
        SensorLog(STEPS * BATCH, points, args.fixed), batch_size=BATCH, shuffle=True, num_workers=2
    )
    model = perceptron(points, 256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    meter = Throughput()
    for values, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(values).squeeze(1), targets)
        loss.backward()
        optimizer.step()
        meter.update(len(targets))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
