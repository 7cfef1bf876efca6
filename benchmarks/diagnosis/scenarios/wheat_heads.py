# /// scenario
# suspect = "model"
# cause = "compute"
# fix = "a smaller model: half the residual blocks"
# severities = [0.75, 1.0, 1.25]  # residual blocks of the model
# held_out = true
# ///
"""Counting of wheat heads in drone images with a density map."""

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class Plots(Dataset):
    def __init__(self, length, size=64, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, size=(128, 3, size, size), dtype=np.uint8)
        self.densities = rng.random((128, 1, size // 2, size // 2), dtype=np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index %= len(self.images)
        return torch.from_numpy(self.images[index]), torch.from_numpy(self.densities[index])


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.layers(x))


class DensityNet(nn.Module):
    def __init__(self, blocks, width=48):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(blocks)])
        self.head = nn.Sequential(nn.Conv2d(width, 1, 1), nn.Softplus())

    def forward(self, images):
        return self.head(self.blocks(self.stem(images.float() / 255)))


def fit(model, loader, learning_rate=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader))
    throughput = Throughput()
    model.train()
    with tqdm(total=len(loader), mininterval=2) as bar:
        for step, (images, densities) in enumerate(loader):
            loss = nn.functional.mse_loss(model(images), densities)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step % 10 == 0:
                bar.set_postfix(loss=f"{loss.item():.4f}")
            bar.update()
            throughput.update(len(images))
    return throughput


def main():
    args = arguments(__doc__)
    blocks = round(8 * args.severity)
    model = DensityNet(blocks // 2 if args.fixed else blocks)
    loader = DataLoader(Plots(60 * 16, seed=args.seed), batch_size=16, shuffle=True, num_workers=1)
    fit(model, loader).report()


if __name__ == "__main__":
    main()
