# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Downscales maps of the sea surface temperature, and keeps the model in the end."""

import argparse
import tempfile
from pathlib import Path

import torch
from common import Throughput
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 32
BATCH = 16
STEPS = 200


class Downscaler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inward = nn.Conv2d(2, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.out = nn.Sequential(nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, coarse):
        hidden = self.inward(coarse)
        for layer in self.body:
            hidden = hidden + torch.relu(layer(hidden))
        return self.out(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    coarse = torch.randn(BATCH * STEPS // 4, 2, SIZE, SIZE)
    fine = nn.functional.interpolate(coarse[:, :1], scale_factor=2, mode="bilinear")
    loader = DataLoader(TensorDataset(coarse, fine), batch_size=BATCH, shuffle=True)
    model = Downscaler(8 * round(5 * args.severity))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    criterion = nn.L1Loss()
    meter = Throughput()
    step = 0
    for epoch in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            meter.update(len(inputs))
            if step % 50 == 0:
                rate = schedule.get_last_lr()[0]
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} "
                      f"norm {norm.item():.3f} rate {rate:.5f}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
            Path(folder) / "last.pt",
        )
    meter.report()


if __name__ == "__main__":
    main()
