# /// scenario
# suspect = "framework_overhead"
# cause = ["evaluation", "checkpoint"]
# fix = ["evaluate less often", "save less often"]
# severities = [0.8, 1.0, 1.3]  # both: how often it draws samples, and how often it saves
# ///
"""Trains a diffusion model of load curves, looks at what it draws and saves it now and then."""

import math
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
from common import Throughput, arguments
from torch import nn

POINTS = 96
NOISES = 36
DRAWN = 128
BATCH = 128
STEPS = 560


class Denoiser(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.time = nn.Embedding(NOISES, width)
        self.enter = nn.Linear(POINTS, width)
        self.middle = nn.Linear(width, width)
        self.leave = nn.Linear(width, POINTS)

    def forward(self, curves, times):
        hidden = torch.relu(self.enter(curves) + self.time(times))
        return self.leave(torch.relu(self.middle(hidden)))


@contextmanager
def evaluating(model):
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def evaluate(model, alphas, unseen):
    """Mean distance of the drawn curves from real ones."""
    with evaluating(model):
        curves = torch.randn(DRAWN, POINTS)
        for time in reversed(range(NOISES)):
            noise = model(curves, torch.full((DRAWN,), time))
            before = alphas[time - 1] if time else torch.tensor(1.0)
            clean = (curves - (1 - alphas[time]).sqrt() * noise) / alphas[time].sqrt()
            curves = before.sqrt() * clean.clamp(-3, 3) + (1 - before).sqrt() * noise
        return torch.cdist(unseen, curves).amin(dim=1).mean().item()


def save_checkpoint(path, model, optimizer, step):
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file
        )
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def main():
    args = arguments(__doc__)
    evaluate_every = 200 if args.fixed else max(1, round(6 / args.severity))
    save_every = 200 if args.fixed else max(1, round(3 / args.severity))
    hours = torch.linspace(0, 2 * math.pi, POINTS)
    curves = torch.sin(hours + 6 * torch.rand(2048, 1)) + torch.randn(2048, POINTS) / 10
    unseen, curves = curves[:128], curves[128:]
    alphas = torch.linspace(0.9999, 0.85, NOISES).cumprod(dim=0)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    meter = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, STEPS + 1):
            clean = curves[torch.randint(0, len(curves), (BATCH,))]
            times = torch.randint(0, NOISES, (BATCH,))
            noise = torch.randn_like(clean)
            share = alphas[times].unsqueeze(1)
            optimizer.zero_grad()
            guess = model(share.sqrt() * clean + (1 - share).sqrt() * noise, times)
            loss = nn.functional.mse_loss(guess, noise)
            loss.backward()
            optimizer.step()
            if step % evaluate_every == 0:
                distance = evaluate(model, alphas, unseen)
            if step % save_every == 0:
                save_checkpoint(Path(folder) / "denoiser.pt", model, optimizer, step)
            meter.update(BATCH)
    print(f"final loss {loss.item():.4f}, {distance:.3f} from real curves")
    meter.report()


if __name__ == "__main__":
    main()
