"""Planted fault: one transform of the augmentation chain, elastic distortion, dominates the step.

Two workers spend nearly all their time in it, and training waits for them.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_augmentation"

SIZE = 64
IMAGES = 512
BATCH = 64


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomHorizontalFlip:
    def __call__(self, image):
        return image[:, ::-1] if np.random.rand() < 0.5 else image


class RandomCrop:
    def __init__(self, padding):
        self.padding = padding

    def __call__(self, image):
        padded = np.pad(image, ((self.padding, self.padding),) * 2)
        y, x = np.random.randint(0, 2 * self.padding + 1, size=2)
        return padded[y : y + image.shape[0], x : x + image.shape[1]]


class ElasticDistortion:
    """Moves every pixel along a smooth random field (Simard et al., 2003)."""

    def __init__(self, alpha, sigma):
        self.alpha = alpha
        reach = np.arange(-3 * sigma, 3 * sigma + 1)
        kernel = np.exp(-(reach**2) / (2 * sigma**2))
        self.kernel = kernel / kernel.sum()

    def smooth(self, field):
        for axis in (0, 1):
            field = np.apply_along_axis(np.convolve, axis, field, self.kernel, mode="same")
        return field

    def __call__(self, image):
        height, width = image.shape
        shift = np.random.uniform(-1, 1, size=(2, height, width))
        rows = np.arange(height)[:, None] + self.alpha * self.smooth(shift[0])
        cols = np.arange(width)[None, :] + self.alpha * self.smooth(shift[1])
        rows = np.clip(np.rint(rows), 0, height - 1).astype(int)
        cols = np.clip(np.rint(cols), 0, width - 1).astype(int)
        return image[rows, cols]


class Normalize:
    def __call__(self, image):
        return (image - image.mean()) / (image.std() + 1e-6)


class AugmentedImages(Dataset):
    def __init__(self, length, transform):
        rng = np.random.default_rng(0)
        self.images = rng.random((IMAGES, SIZE, SIZE), dtype=np.float32)
        self.labels = rng.integers(0, 10, size=IMAGES)
        self.length = length
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = self.transform(self.images[index % IMAGES])
        pixels = torch.from_numpy(image.astype(np.float32))[None]
        return pixels, int(self.labels[index % IMAGES])


def main():
    parser = argparse.ArgumentParser(description="Trains a small CNN on augmented images.")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    transform = Compose(
        [
            RandomCrop(padding=4),
            RandomHorizontalFlip(),
            ElasticDistortion(alpha=8.0, sigma=3),
            Normalize(),
        ]
    )
    dataset = AugmentedImages(args.steps * BATCH, transform)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (SIZE // 8) ** 2, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
