# /// scenario
# suspect = "model"
# cause = ["optimizer", "slow_augmentation"]
# fix = ["refresh the preconditioners rarely", "augment whole batches"]
# severities = [0.9, 1.0, 1.1]  # 1 is layers of 384
# held_out = true
# ///
"""Tells whales apart by spectrograms of their calls, with a preconditioned optimizer."""

import numpy as np
import torch
from common import Throughput, arguments
from scipy import ndimage
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BANDS, FRAMES = 64, 96
WHALES = 8
BATCH = 48
STEPS = 160


class Calls(Dataset):
    def __init__(self, count, rng, augmented):
        self.whales = rng.integers(WHALES, size=count)
        self.calls = rng.standard_normal((count, BANDS, FRAMES), dtype=np.float32)
        for call, whale in zip(self.calls, self.whales, strict=True):
            call[6 * whale : 6 * whale + 10, 20:70] += 1.5
        self.rng, self.augmented = rng, augmented

    def __len__(self):
        return len(self.calls)

    def augment(self, call):
        """Stretches and shifts a call, adds noise, and hides some bands and frames."""
        stretch, shift = self.rng.uniform(0.9, 1.1), self.rng.uniform(-3, 3)
        call = ndimage.affine_transform(call, [1.0, stretch], offset=[shift, 0.0], order=3)
        sea = self.rng.standard_normal(call.shape, dtype=np.float32)
        call += 0.3 * ndimage.uniform_filter(sea, 3)
        band, frame = self.rng.integers(BANDS - 8), self.rng.integers(FRAMES - 12)
        call[band : band + 8] = 0
        call[:, frame : frame + 12] = 0
        return call

    def __getitem__(self, index):
        call = self.calls[index]
        if self.augmented:
            call = self.augment(call)
        return torch.from_numpy(call)[None], int(self.whales[index])


def augment_batch(calls):
    """Does the same as `Calls.augment`, for a batch."""
    count = len(calls)
    transform = torch.zeros(count, 2, 3)
    transform[:, 0, 0] = torch.empty(count).uniform_(0.9, 1.1)
    transform[:, 1, 1] = 1
    transform[:, 1, 2] = torch.empty(count).uniform_(-3, 3) * 2 / BANDS
    grid = functional.affine_grid(transform, list(calls.shape), align_corners=False)
    calls = functional.grid_sample(calls, grid, mode="bicubic", align_corners=False)
    calls = calls + 0.3 * functional.avg_pool2d(torch.randn_like(calls), 3, 1, 1)
    bands = torch.arange(BANDS) - torch.randint(BANDS - 8, (count, 1))
    frames = torch.arange(FRAMES) - torch.randint(FRAMES - 12, (count, 1))
    hidden = ((bands >= 0) & (bands < 8))[:, :, None] | ((frames >= 0) & (frames < 12))[:, None]
    return calls.masked_fill(hidden[:, None], 0)


class Shampoo(torch.optim.Optimizer):
    """Descent along gradients that are whitened on both sides of each matrix."""

    def __init__(self, parameters, lr, interval=1, decay=0.95, epsilon=1e-6):
        defaults = {"lr": lr, "interval": interval, "decay": decay, "epsilon": epsilon}
        super().__init__(parameters, defaults)

    @staticmethod
    def inverse_root(matrix, epsilon):
        values, vectors = torch.linalg.eigh(matrix.double())
        floor = epsilon * values[-1].clamp(min=1e-12)
        return ((vectors * values.clamp(min=floor).pow(-0.25)) @ vectors.T).float()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient.ndim < 2:
                    parameter.sub_(gradient, alpha=group["lr"])
                    continue
                gradient = gradient.flatten(1)
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["left"] = torch.zeros(len(gradient), len(gradient))
                    state["right"] = torch.zeros(gradient.shape[1], gradient.shape[1])
                decay = group["decay"]
                state["left"].lerp_(gradient @ gradient.T, 1 - decay)
                state["right"].lerp_(gradient.T @ gradient, 1 - decay)
                if state["step"] % group["interval"] == 0:
                    state["left_root"] = self.inverse_root(state["left"], group["epsilon"])
                    state["right_root"] = self.inverse_root(state["right"], group["epsilon"])
                state["step"] += 1
                update = state["left_root"] @ gradient @ state["right_root"]
                update *= gradient.norm() / update.norm().clamp(min=1e-12)
                parameter.sub_(update.view_as(parameter), alpha=group["lr"])


def build_model(width=32, hidden=384):
    return nn.Sequential(
        nn.Conv2d(1, width, 7, stride=4, padding=3),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((3, 4)),
        nn.Flatten(),
        nn.Linear(12 * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, WHALES),
    )


def main():
    args = arguments(__doc__)
    per_sample = not args.fixed
    calls = Calls(STEPS * BATCH // 4, np.random.default_rng(args.seed), per_sample)
    loader = DataLoader(calls, BATCH, shuffle=True)
    model = build_model(hidden=int(384 * args.severity))
    optimizer = Shampoo(model.parameters(), lr=0.05, interval=40 if args.fixed else 1)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for _ in range(4):
        for spectrograms, whales in loader:
            inputs = spectrograms if per_sample else augment_batch(spectrograms)
            loss = criterion(model(inputs), whales)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(len(spectrograms))
    meter.report(loss)


if __name__ == "__main__":
    main()
