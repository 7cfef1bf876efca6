"""A run that draws from every random generator and is the same to the last bit each time.

``--out FILE`` receives the losses, in hexadecimal, and a hash of the final weights.
"""

import argparse
import hashlib
import random
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECTED_STEPS = 30

BATCH = 16


class AugmentedImages(Dataset):
    def __init__(self, length):
        self.images = torch.randn(length, 1, 16, 16)
        self.labels = torch.randint(0, 4, (length,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if random.random() < 0.5:
            image = image.flip(-1)
        image = image.roll(int(np.random.randint(-2, 3)), dims=-2)
        return image + 0.1 * torch.randn(image.shape), self.labels[index]


def train(model, loader):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for images, labels in loader:
        if random.random() < 0.3:  # mixup within the batch, now and then
            share = float(np.random.beta(0.4, 0.4))
            mixed = images[torch.randperm(len(images))]
            images = share * images + (1 - share) * mixed  # noqa: PLW2901
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description="A bit-for-bit reproducible training run.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    parser.add_argument("--out", type=Path, help="file for the losses and the weights' hash")
    args = parser.parse_args()

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dataset = AugmentedImages(args.steps * BATCH)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(8 * 16 * 16, 4),
    )
    losses = train(model, loader)
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    if args.out:
        lines = [*(loss.hex() for loss in losses), f"sha256 {digest.hexdigest()}"]
        args.out.write_text("\n".join(lines) + "\n")
    print(f"final loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
