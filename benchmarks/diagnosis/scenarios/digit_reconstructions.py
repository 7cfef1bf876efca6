# /// scenario
# suspect = "framework_overhead"
# cause = "logging"
# fix = "log every N steps"
# severities = [0.6, 1.0, 1.6]  # reconstructions that are shown
# ///
"""Trains a variational autoencoder on digits and shows on a board how they come out again."""

import struct
import tempfile
import zlib
from pathlib import Path

import torch
from common import Throughput, arguments
from torch import nn

SIZE = 28
BATCH = 96
STEPS = 340


class Board:
    """Pictures and numbers in a folder, for the browser."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.scalars = (self.folder / "scalars.csv").open("w")

    def add_scalar(self, name, value, step):
        self.scalars.write(f"{step},{name},{value}\n")

    def add_images(self, name, images, step):
        """All of them in rows of eight, magnified."""
        grid = images.unflatten(0, (-1, 8)).transpose(1, 2).flatten(0, 1).flatten(1, 2)
        grid = (255 * grid).byte().repeat_interleave(3, dim=0).repeat_interleave(3, dim=1)
        rows = b"".join(b"\0" + row.numpy().tobytes() for row in grid)
        header = struct.pack(">IIBBBBB", grid.shape[1], grid.shape[0], 8, 0, 0, 0, 0)
        with (self.folder / f"{name}_{step % 50:03}.png").open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
                file.write(struct.pack(">I", len(body)) + kind + body)
                file.write(struct.pack(">I", zlib.crc32(kind + body)))


class Autoencoder(nn.Module):
    def __init__(self, width=384, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIZE**2, width), nn.ReLU())
        self.mean, self.spread = nn.Linear(width, latent), nn.Linear(width, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, SIZE**2), nn.Sigmoid()
        )

    def forward(self, digits):
        hidden = self.encoder(digits.flatten(1))
        mean, spread = self.mean(hidden), self.spread(hidden)
        sampled = mean + torch.randn_like(mean) * (spread / 2).exp()
        divergence = (mean.square() + spread.exp() - 1 - spread).sum(dim=1).mean() / 2
        return self.decoder(sampled).view_as(digits), divergence


def main():
    args = arguments(__doc__)
    shown = 8 * round(4 * args.severity)
    strokes = torch.rand(1024, 1, 7, 7)
    digits = nn.functional.interpolate(strokes, size=SIZE, mode="bilinear").squeeze(1)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(folder)
        meter = Throughput()
        for step in range(STEPS):
            batch = digits[torch.randint(0, len(digits), (BATCH,))]
            optimizer.zero_grad()
            restored, divergence = model(batch)
            loss = nn.functional.binary_cross_entropy(restored, batch) + divergence / SIZE**2
            loss.backward()
            optimizer.step()
            if not args.fixed or step % 50 == 0:
                board.add_scalar("loss", loss.item(), step)
                board.add_images("digits", batch[:shown], step)
                board.add_images("restored", restored.detach()[:shown], step)
            meter.update(BATCH)
        board.scalars.close()
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
