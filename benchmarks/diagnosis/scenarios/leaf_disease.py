# /// scenario
# suspect = "data_pipeline"
# cause = "slow_augmentation"
# fix = "shrink the photographs once and augment the small ones"
# severities = [0.7, 1.0, 1.5]  # pixels of a photograph
# held_out = true
# ///
"""Classification of leaf diseases from photographs, with a trainer class of its own."""

import math
import random

import numpy as np
import torch
from common import Throughput, arguments
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

DISEASES = ["healthy", "rust", "blight", "mildew", "mosaic", "canker"]


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomRotation:
    def __init__(self, degrees):
        self.degrees = degrees

    def __call__(self, image):
        angle = random.uniform(-self.degrees, self.degrees)
        return image.rotate(angle, resample=Image.Resampling.BICUBIC)


class RandomPerspective:
    def __init__(self, strength):
        self.strength = strength

    def __call__(self, image):
        a, b = (random.uniform(-self.strength, self.strength) for _ in range(2))
        coefficients = (1 + a, b, 0, -b, 1 - a, 0, 1e-4 * a, 1e-4 * b)
        return image.transform(
            image.size, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR
        )


class ColourJitter:
    def __call__(self, image):
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(random.uniform(0.7, 1.3))
        return image


class RandomBlur:
    def __call__(self, image):
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.2, 1.2)))


class RandomFlip:
    def __call__(self, image):
        return ImageOps.mirror(image) if random.random() < 0.5 else image


class ToTensor:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        if image.size != (self.size, self.size):
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image, dtype=np.float32) / 255.0 - 0.5
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


class Leaves(Dataset):
    def __init__(self, side, length, transform, shrink_to=None, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(DISEASES), size=160)
        self.photos = []
        for label in self.labels:
            coarse = rng.integers(0, 256, size=(8 + 4 * label, 8 + 4 * label, 3), dtype=np.uint8)
            photo = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
            if shrink_to is not None:
                photo = photo.resize((shrink_to, shrink_to), Image.Resampling.BILINEAR)
            self.photos.append(photo)
        self.length, self.transform = length, transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index %= len(self.photos)
        return self.transform(self.photos[index]), int(self.labels[index])


class Trainer:
    def __init__(self, model, epochs, steps_per_epoch):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.05, total_steps=epochs * steps_per_epoch
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.epochs = epochs
        self.throughput = Throughput()

    def train_step(self, photos, labels):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(photos), labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def fit(self, loader):
        self.model.train()
        for epoch in range(self.epochs):
            progress = tqdm(loader, desc=f"epoch {epoch}", mininterval=2)
            total = torch.zeros(())
            for photos, labels in progress:
                total += self.train_step(photos, labels)
                self.throughput.update(len(photos))
            print(f"epoch {epoch}: loss {float(total) / len(loader):.4f}")


def build_model(width=20):
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )

    return nn.Sequential(
        block(3, width // 2),
        block(width // 2, width),
        block(width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(2 * width, len(DISEASES)),
    )


def main():
    args = arguments(__doc__)
    side = int(170 * math.sqrt(args.severity))
    batch_size, epochs, steps = 32, 2, 105
    transform = Compose(
        RandomFlip(),
        RandomRotation(30),
        RandomPerspective(0.15),
        ColourJitter(),
        RandomBlur(),
        ToTensor(48),
    )
    dataset = Leaves(
        side, batch_size * steps, transform, shrink_to=48 if args.fixed else None, seed=args.seed
    )
    loader = DataLoader(
        dataset, batch_size=batch_size, shuffle=True, num_workers=2, persistent_workers=True
    )
    trainer = Trainer(build_model(), epochs, steps)
    trainer.fit(loader)
    trainer.throughput.report()


if __name__ == "__main__":
    main()
