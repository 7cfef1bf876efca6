# /// scenario
# suspect = "data_pipeline"
# cause = ["slow_augmentation", "logging"]
# stage = "augment"
# fix = ["augment whole batches instead of samples", "log every N steps"]
# severities = [0.8, 1.0, 1.3]  # both: masks per spectrum, lines per step
# quick = true
# ///
"""Trains a chord recogniser on warped and masked spectra and logs every prediction."""

import logging
import tempfile

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

BINS, FRAMES = 48, 64
CHORDS = 24
BATCH = 32
STEPS = 140

logger = logging.getLogger("chords")


def warp(spectrum, strength):
    """Stretches every bin along time, each a little differently."""
    frames = np.arange(FRAMES)
    warped = np.empty_like(spectrum)
    for number, row in enumerate(spectrum):
        shifted = frames + strength * np.sin(frames / FRAMES * np.pi * np.random.rand())
        warped[number] = np.interp(shifted, frames, row)
    return warped


class Spectra(Dataset):
    def __init__(self, length, passes):
        self.spectra = np.random.rand(256, BINS, FRAMES).astype(np.float32)
        self.passes = passes
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        spectrum = self.spectra[index % 256]
        for _ in range(self.passes):
            spectrum = warp(spectrum, 2.0)
        return torch.from_numpy(spectrum), index % CHORDS


def warp_batch(spectra):
    return spectra.roll(int(np.random.randint(-2, 3)), dims=2)


def write(step, scores, lines):
    for line in range(lines):
        logger.info("step %d item %d scores %s", step, line, scores[line % BATCH])


def main():
    args = arguments(__doc__)
    passes = 0 if args.fixed else round(7 * args.severity)
    loader = DataLoader(
        Spectra(STEPS * BATCH, passes), batch_size=BATCH, shuffle=True, num_workers=2
    )
    model = nn.Sequential(nn.Flatten(), perceptron(BINS * FRAMES, 128, CHORDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    lines = round(900 * args.severity)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        logger.addHandler(logging.FileHandler(file.name))
        logger.setLevel(logging.INFO)
        meter = Throughput()
        for step, (spectra, labels) in enumerate(loader):
            if args.fixed:
                spectra = warp_batch(spectra)
            optimizer.zero_grad()
            scores = model(spectra)
            loss = criterion(scores, labels)
            loss.backward()
            optimizer.step()
            if not args.fixed or step % 50 == 0:
                write(step, scores.detach()[:, :3].tolist(), lines)
            meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
