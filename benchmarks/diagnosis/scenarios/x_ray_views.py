# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.2]  # width of the model
# ///
"""Tells the views of chest X-rays apart, which one worker reads as JPEG."""

import argparse
import io

import numpy as np
import torch
from common import Throughput
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64
BATCH = 24
STEPS = 140
VIEWS = 4


class Radiographs(Dataset):
    def __init__(self, length, seed):
        rng = np.random.default_rng(seed)
        self.files = []
        for _ in range(200):
            rough = rng.integers(0, 256, size=(8, 8), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(rough).resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % 200])) as image:
            pixels = np.asarray(image, dtype=np.float32) / 255.0
        if np.random.random() < 0.5:
            pixels = pixels[:, ::-1].copy()
        return torch.from_numpy(pixels).unsqueeze(0), index % VIEWS


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, image):
        return torch.relu(image + self.body(image))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    width = 8 * round(5 * args.severity)
    loader = DataLoader(
        Radiographs(STEPS * BATCH, args.seed), batch_size=BATCH, shuffle=True, num_workers=1
    )
    model = nn.Sequential(
        nn.Conv2d(1, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU(),
        Residual(width), nn.MaxPool2d(2), Residual(width), Residual(width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, VIEWS),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    meter = Throughput()
    for images, views in loader:
        loss = criterion(model(images), views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(len(views))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
