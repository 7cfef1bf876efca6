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
from common import Images, arguments, classify, convolutions, sgd, train
from torch.utils.data import DataLoader

BATCH = 24


def jitter(image):
    """Turns the hue and changes the saturation, pixel by pixel."""
    turn, gain = np.random.uniform(-0.1, 0.1), np.random.uniform(0.7, 1.3)
    pixels = image.reshape(3, -1).T.tolist()
    for index, (red, green, blue) in enumerate(pixels):
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        pixels[index] = colorsys.hsv_to_rgb((hue + turn) % 1, min(1, saturation * gain), value)
    return np.array(pixels, dtype=np.float32).T.reshape(image.shape)


class Photographs(Images):
    share = 0.0

    def __getitem__(self, index):
        pixels, label = super().__getitem__(index)
        image = pixels.numpy()
        rows = round(32 * self.share)
        for _ in range(2):
            image[:, :rows] = jitter(image[:, :rows])
        return torch.from_numpy(image), label


def jitter_batch(images):
    """Turns and stretches the colours around grey, for all images at once."""
    grey = images.mean(dim=1, keepdim=True)
    gain = torch.empty(len(images), 1, 1, 1).uniform_(0.7, 1.3)
    return (grey + (images - grey) * gain).roll(1, dims=1).clamp(0, 1)


def classify_jittered(model, images, labels):
    return classify(model, jitter_batch(images), labels)


def main():
    args = arguments(__doc__)
    dataset = (Images if args.fixed else Photographs)(140 * BATCH, seed=args.seed)
    dataset.share = 0.66 * args.severity
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=2)
    model = convolutions(width=8)
    train(model, sgd(model), loader, classify_jittered if args.fixed else classify)


if __name__ == "__main__":
    main()
