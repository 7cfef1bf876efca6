# /// scenario
# suspect = "data_pipeline"
# cause = "slow_augmentation"
# stage = "augment"
# fix = "augment whole batches instead of samples"
# severities = [0.7, 1.0, 1.5]  # length of the impulse response
# ///
"""Trains a keyword spotter on recordings that are made to sound like other rooms."""

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000
CLIPS = 256
BATCH = 24
STEPS = 150


def impulse(length):
    """An echo that dies away."""
    return np.random.standard_normal(length) * np.exp(-np.linspace(0, 8, length))


class Clips(Dataset):
    def __init__(self, length, transforms):
        self.clips = np.random.standard_normal((CLIPS, RATE)).astype(np.float32)
        self.labels = np.random.randint(0, 12, size=CLIPS)
        self.transforms = transforms
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        clip = self.clips[index % CLIPS]
        for transform in self.transforms:
            clip = transform(clip)
        return torch.from_numpy(clip.astype(np.float32)), int(self.labels[index % CLIPS])


class Reverb:
    def __init__(self, taps):
        self.taps = taps

    def __call__(self, clip):
        return np.convolve(clip, impulse(self.taps))[: len(clip)]


class Gain:
    def __call__(self, clip):
        return clip * np.random.uniform(0.5, 1.5)


def reverb_batch(clips, taps):
    """One echo for the batch, by multiplying spectra."""
    spectrum = torch.fft.rfft(clips, n=2 * RATE)
    response = torch.fft.rfft(torch.from_numpy(impulse(taps)).float(), n=2 * RATE)
    return torch.fft.irfft(spectrum * response, n=2 * RATE)[:, :RATE]


def main():
    args = arguments(__doc__)
    taps = round(2000 * args.severity)
    transforms = [Gain()] if args.fixed else [Reverb(taps), Gain()]
    loader = DataLoader(
        Clips(STEPS * BATCH, transforms), batch_size=BATCH, shuffle=True, num_workers=2
    )
    model = nn.Sequential(
        nn.Conv1d(1, 16, 64, stride=16),
        nn.ReLU(),
        nn.Conv1d(16, 32, 8, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(8),
        nn.Flatten(),
        nn.Linear(256, 12),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for clips, labels in loader:
        if args.fixed:
            clips = reverb_batch(clips, taps)
        optimizer.zero_grad()
        loss = criterion(model(clips[:, None]), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
