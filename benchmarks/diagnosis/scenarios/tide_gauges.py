# /// scenario
# suspect = "framework_overhead"
# cause = "debug_switch"
# stage = "anomaly detection"
# fix = "turn the debug switch off: remove it from the script"
# severities = [0.6, 1.0, 2.0]  # length of the series
# ///
"""Forecasts tides with a recurrent cell, and still looks for the NaN of last month."""

import torch
from common import arguments, sampled, train
from torch import nn


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


def compute_loss(model, series, levels):
    return nn.functional.mse_loss(model(series), levels)


def main():
    args = arguments(__doc__)
    torch.autograd.set_detect_anomaly(not args.fixed)
    series = torch.randn(1024, round(6 * args.severity), 4)
    batches = sampled([series, series[:, :, 0].mean(dim=1)], 64, 300)
    model = Forecaster()
    train(model, torch.optim.Adam(model.parameters(), lr=1e-3), batches, compute_loss)


if __name__ == "__main__":
    main()
