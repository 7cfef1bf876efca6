# /// scenario
# suspect = "data_pipeline"
# cause = "slow_augmentation"
# stage = "augment"
# fix = "augment whole batches instead of samples"
# severities = [0.7, 1.0, 1.5]  # blurring passes and pixels
# quick = true
# ///
"""Trains a CNN on photographs whose colours and sharpness vary."""

import colorsys

import numpy as np
import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader

BATCH = 24
STEPS = 140
SIZE = 32


def jitter(image):
    """Turns the hue and changes the saturation, pixel by pixel."""
    turn, gain = np.random.uniform(-0.1, 0.1), np.random.uniform(0.7, 1.3)
    pixels = image.reshape(3, -1).T.tolist()
    for index, (red, green, blue) in enumerate(pixels):
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        pixels[index] = colorsys.hsv_to_rgb((hue + turn) % 1, min(1, saturation * gain), value)
    return np.array(pixels, dtype=np.float32).T.reshape(image.shape)


class Photographs(Images):
    def __init__(self, length, share, seed):
        super().__init__(length, SIZE, seed)
        self.share = share

    def __getitem__(self, index):
        pixels, label = super().__getitem__(index)
        image = pixels.numpy()
        rows = round(SIZE * self.share)
        for _ in range(2):
            image[:, :rows] = jitter(image[:, :rows])
        return torch.from_numpy(image), label


def jitter_batch(images):
    """Turns and stretches the colours around grey, for all images at once."""
    grey = images.mean(dim=1, keepdim=True)
    gain = torch.empty(len(images), 1, 1, 1).uniform_(0.7, 1.3)
    return (grey + (images - grey) * gain).roll(1, dims=1).clamp(0, 1)


def main():
    args = arguments(__doc__)
    if args.fixed:
        dataset = Images(STEPS * BATCH, SIZE, args.seed)
    else:
        dataset = Photographs(STEPS * BATCH, 0.66 * args.severity, args.seed)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2)
    model = convolutions(3, SIZE, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for images, labels in loader:
        if args.fixed:
            images = jitter_batch(images)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
