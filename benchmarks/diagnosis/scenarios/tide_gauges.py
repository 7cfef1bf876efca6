# /// scenario
# suspect = "framework_overhead"
# cause = "debug_switch"
# stage = "anomaly detection"
# fix = "turn the debug switch off: remove it from the script"
# severities = [0.6, 1.0, 2.0]  # length of the series
# ///
"""Forecasts tides with a recurrent cell, and still looks for the NaN of last month."""

import torch
from common import Throughput, arguments
from torch import nn

BATCH = 64
STEPS = 300


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.width = width
        self.cell = nn.GRUCell(4, width)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        hidden = torch.zeros(len(series), self.width)
        for reading in series.unbind(1):
            hidden = self.cell(reading, hidden)
        return self.head(hidden).squeeze(-1)


def main():
    args = arguments(__doc__)
    torch.autograd.set_detect_anomaly(not args.fixed)
    length = round(6 * args.severity)
    series = torch.randn(1024, length, 4)
    levels = series[:, :, 0].mean(dim=1)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, len(series), (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(series[rows]), levels[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
