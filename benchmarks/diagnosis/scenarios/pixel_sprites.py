# /// scenario
# suspect = "framework_overhead"
# cause = "evaluation"
# fix = "evaluate less often: draw samples at the end only"
# severities = [0.7, 1.0, 1.5]  # denoising steps of a sample
# ///
"""Trains a denoising diffusion model on pixel-art sprites, with a contact sheet now and then."""

import argparse
import math

import torch
from common import Throughput
from torch import nn

SIZE = 16
LEVELS = 200
BATCH = 48
STEPS = 240


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.inward = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noisy, level):
        high = torch.relu(self.inward(noisy) + self.level(level)[:, :, None, None])
        low = torch.relu(self.middle(torch.relu(self.down(high))))
        return self.out(high + torch.relu(self.up(low)))


def kept(level):
    """Share of the picture that is left at a noise level."""
    return torch.cos((level.float() + 1) / (LEVELS + 1) * math.pi / 2) ** 2


@torch.no_grad()
def contact_sheet(model, count, denoising):
    """A few sprites out of noise (DDIM)."""
    model.eval()
    sprites = torch.randn(count, 3, SIZE, SIZE)
    levels = torch.linspace(LEVELS - 1, 0, denoising).long()
    for now, then in zip(levels, [*levels[1:], None], strict=True):
        noise = model(sprites, now.expand(count))
        signal = kept(now)
        clean = (sprites - (1 - signal).sqrt() * noise) / signal.sqrt()
        after = kept(then) if then is not None else torch.tensor(1.0)
        sprites = after.sqrt() * clean.clamp(-1, 1) + (1 - after).sqrt() * noise
    model.train()
    return sprites


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    sample_every = STEPS if args.fixed else 10
    denoising = round(50 * args.severity)
    sprites = torch.rand(1024, 3, SIZE, SIZE) * 2 - 1
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    sheets = []
    for step in range(1, STEPS + 1):
        clean = sprites[torch.randint(1024, (BATCH,))]
        level = torch.randint(LEVELS, (BATCH,))
        noise = torch.randn_like(clean)
        signal = kept(level)[:, None, None, None]
        predicted = model(signal.sqrt() * clean + (1 - signal).sqrt() * noise, level)
        loss = nn.functional.mse_loss(predicted, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
        if step % sample_every == 0:
            sheets.append(contact_sheet(model, 36, denoising))
    print(f"loss {loss.item():.4f}, {len(sheets)} sheets of sprites")
    meter.report()


if __name__ == "__main__":
    main()
