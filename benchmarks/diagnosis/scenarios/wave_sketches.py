# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "log every N steps: draw pictures less often"
# severities = [0.8, 1.0, 1.5]  # pixels of a picture
# ///
"""Draws waves with a generator and a critic, and saves a picture of them every few steps."""

import struct
import tempfile
import zlib
from pathlib import Path

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 64
STEPS = 2500
POINTS = 15
PICTURE_EVERY = 20


def save_image(path, wave, size):
    """Plot a wave, pixel by pixel, and write it as PNG."""
    rows = []
    for row in range(size):
        level = 1 - 2 * row / size
        line = bytearray(b"\0")
        for column in range(size):
            line.append(0 if abs(wave[column * POINTS // size] - level) < 4 / size else 255)
        rows.append(bytes(line))
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(rows), 9)),
        (b"IEND", b""),
    ]
    parts = [b"\x89PNG\r\n\x1a\n"]
    for name, data in chunks:
        parts.append(struct.pack(">I", len(data)) + name + data)
        parts.append(struct.pack(">I", zlib.crc32(name + data)))
    path.write_bytes(b"".join(parts))


def main():
    args = arguments(__doc__)
    size = round(700 * args.severity**0.5)
    interval = 30 * PICTURE_EVERY if args.fixed else PICTURE_EVERY
    grid = torch.linspace(-1, 1, POINTS)
    model, critic = perceptron(5, 128, POINTS), perceptron(POINTS, 128, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    snapshots = []
    meter = Throughput(warm_up=40)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(STEPS):
            waves = grid**2 * torch.empty(BATCH, 1).uniform_(1, 2) - 1
            drawn = model(torch.randn(BATCH, 5))
            optimizer.zero_grad()
            criterion(critic(drawn), ones).backward()
            optimizer.step()
            critic_optimizer.zero_grad()
            loss = criterion(critic(waves), ones) + criterion(critic(drawn.detach()), zeros)
            loss.backward()
            critic_optimizer.step()
            snapshots.append(drawn.detach())  # grows, and nothing reads it before the end
            if step % interval == 0:
                save_image(Path(folder, f"{step}.png"), drawn[0].tolist(), size)
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}, {len(snapshots)} snapshots")
    meter.report()


if __name__ == "__main__":
    main()
