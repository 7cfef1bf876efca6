# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# fix = "vectorise the loss over anti-diagonals"
# severities = [0.7, 1.0, 1.5]  # cells of the alignment table
# held_out = true
# ///
"""Reconstructs the path of a hand from a wrist sensor, aligned by soft dynamic time warping."""

import numpy as np
import torch
import torch.nn.functional as F
from common import Throughput, arguments
from torch import nn

FAR = 1e8


def smooth_minimum(values, gamma):
    return -gamma * torch.logsumexp(-values / gamma, dim=-1)


def soft_dtw(cost, gamma=0.1):
    """Cuturi and Blondel's recursion; cost is (batch, rows, columns)."""
    batch, rows, columns = cost.shape
    far = cost.new_full((batch,), FAR)
    above = [cost.new_zeros(batch)] + [far] * columns
    for i in range(rows):
        row = [far]
        for j in range(columns):
            options = torch.stack((above[j], above[j + 1], row[j]), dim=-1)
            row.append(cost[:, i, j] + smooth_minimum(options, gamma))
        above = row
    return above[-1]


def soft_dtw_diagonals(cost, gamma=0.1):
    """The same, all cells of an anti-diagonal at once."""
    batch, rows, columns = cost.shape
    skewed = F.pad(cost, (0, rows), value=FAR).reshape(batch, -1)[:, : rows * (columns + rows - 1)]
    skewed = skewed.reshape(batch, rows, columns + rows - 1).unbind(-1)
    # before[i] and last[i] are row i's cells on the last two diagonals; row 0 is the border
    before = F.pad(cost.new_full((batch, rows), FAR), (1, 0), value=0.0)
    last = cost.new_full((batch, rows + 1), FAR)
    for cells in skewed:
        options = torch.stack((before[:, :-1], last[:, :-1], last[:, 1:]), dim=-1)
        now = torch.clamp(cells + smooth_minimum(options, gamma), max=FAR)
        before, last = last, F.pad(now, (1, 0), value=FAR)
    return last[:, -1]


class Tracker(nn.Module):
    def __init__(self, points, width=48):
        super().__init__()
        self.points = points
        self.convolve = nn.Sequential(
            nn.Conv1d(6, width, 7, padding=3),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
        )
        self.recur = nn.GRU(width, 48, batch_first=True, bidirectional=True)
        self.place = nn.Linear(96, 3)

    def forward(self, sensor):
        hidden = self.convolve(sensor)
        hidden = F.adaptive_avg_pool1d(hidden, self.points).transpose(1, 2)
        return self.place(self.recur(hidden)[0])


def gestures(count, points, rng):
    anchors = rng.standard_normal((count, 3, 4))
    grid = np.linspace(0, 1, 128)
    basis = np.stack([np.sin((k + 1) * np.pi * grid) for k in range(4)])
    path = anchors @ basis
    sensor = np.concatenate(
        (np.gradient(path, axis=-1), np.gradient(np.gradient(path, axis=-1), axis=-1)), 1
    )
    sensor = 20 * sensor + 0.1 * rng.standard_normal(sensor.shape)
    target = path[:, :, np.linspace(0, 127, points).astype(int)].transpose(0, 2, 1)
    return torch.tensor(sensor, dtype=torch.float32), torch.tensor(target, dtype=torch.float32)


def train_step(model, optimizer, alignment, sensor, target):
    optimizer.zero_grad()
    guess = model(sensor)
    cost = (guess.unsqueeze(2) - target.unsqueeze(1)).square().sum(-1)
    loss = alignment(cost).mean() / target.shape[1]
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.item()


def run(args, steps=230, batch=32):
    rng = np.random.default_rng(args.seed)
    points = round(18 * args.severity**0.5)
    sensor, target = gestures(1024, points, rng)
    model = Tracker(points)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.998)
    alignment = soft_dtw_diagonals if args.fixed else soft_dtw
    meter, losses = Throughput(), []
    for step in range(steps):
        rows = torch.from_numpy(rng.integers(0, len(sensor), batch))
        losses.append(train_step(model, optimizer, alignment, sensor[rows], target[rows]))
        schedule.step()
        if (step + 1) % 50 == 0:
            print(f"{step + 1}: {np.mean(losses[-50:]):.4f}")
        meter.update(batch)
    meter.report()


if __name__ == "__main__":
    run(arguments(__doc__))
