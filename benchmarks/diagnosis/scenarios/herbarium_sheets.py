# /// scenario
# suspect = "framework_overhead"
# cause = ["checkpoint", "slow_decode"]
# fix = ["save less often", "decode once and cache the result"]
# severities = [0.8, 1.0, 1.25]  # 1 is scans of 576 pixels and a layer of 640
# held_out = true
# ///
"""Names the plant families of scanned herbarium sheets."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import Throughput, arguments
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCAN = 576
SIZE = 64
SHEETS = 240
FAMILIES = 12
BATCH = 16
EPOCHS = 14


def scan_sheets(folder, rng, side):
    """Writes the scans and returns their paths and families."""
    sheets = []
    for number in range(SHEETS):
        family = int(rng.integers(FAMILIES))
        paper = rng.integers(150, 220, size=(SCAN // 8, SCAN // 8, 3), dtype=np.uint8)
        top = 4 * family
        paper[top : top + 16, 10:50] //= 3
        path = folder / f"sheet_{number:04d}.jpg"
        Image.fromarray(paper).resize((side, side), Image.Resampling.BICUBIC).save(path, quality=92)
        sheets.append((path, family))
    return sheets


class Herbarium(Dataset):
    def __init__(self, sheets, in_memory=False):
        self.sheets = sheets
        self.images = [self.read(path) for path, _ in sheets] if in_memory else None

    def __len__(self):
        return len(self.sheets)

    @staticmethod
    def read(path):
        with Image.open(path) as image:
            small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BOX)
        return torch.from_numpy(np.array(small)).permute(2, 0, 1)

    def __getitem__(self, index):
        path, family = self.sheets[index]
        image = self.read(path) if self.images is None else self.images[index]
        return image.float().div_(255), family


class FamilyNet(nn.Module):
    def __init__(self, hidden, width=12):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Linear(2 * width * (SIZE // 4) ** 2, hidden), nn.ReLU(), nn.Linear(hidden, FAMILIES)
        )

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


def save(folder, step, model, optimizer, keep=3):
    """Saves the state of the training and removes old files."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "last.pt")
    torch.save(state, folder / f"state_{step:06d}.pt")
    for old in sorted(folder.glob("state_*.pt"))[:-keep]:
        old.unlink()


def main():
    args = arguments(__doc__)
    save_every = 100 if args.fixed else 2
    model = FamilyNet(int(640 * args.severity))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sheets = scan_sheets(folder, np.random.default_rng(args.seed), int(SCAN * args.severity))
        loader = DataLoader(Herbarium(sheets, in_memory=args.fixed), BATCH, shuffle=True)
        meter = Throughput()
        step = 0
        for _ in range(EPOCHS):
            for images, families in loader:
                optimizer.zero_grad()
                loss = criterion(model(images), families)
                loss.backward()
                optimizer.step()
                step += 1
                if step % save_every == 0:
                    save(folder, step, model, optimizer)
                meter.update(len(images))
    meter.report(loss)


if __name__ == "__main__":
    main()
