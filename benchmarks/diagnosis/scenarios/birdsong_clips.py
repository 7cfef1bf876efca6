# /// scenario
# suspect = "data_pipeline"
# cause = "slow_decode"
# stage = "decode"
# fix = "decode once and cache the result in an array"
# severities = [0.7, 1.0, 1.5]  # samples in a clip
# ///
"""Trains an autoencoder on birdsong that the archive keeps as Rice codes."""

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

CLIPS = 160
BATCH = 16
STEPS = 300
LOW_BITS = 5


def packed(clip):
    """Differences of neighbours: the high part in unary, the low part in five bits."""
    steps = np.diff(clip, prepend=0)
    folded = np.where(steps >= 0, 2 * steps, -2 * steps - 1)
    bits = "".join(
        "0" * (value >> LOW_BITS) + "1" + f"{value & 31:05b}" for value in folded.tolist()
    )
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")


def unpacked(code, samples):
    bits = bin(int.from_bytes(code, "big"))[3:]
    clip = np.empty(samples, dtype=np.float32)
    level = position = 0
    for number in range(samples):
        one = bits.index("1", position)
        value = (one - position) << LOW_BITS | int(bits[one + 1 : one + 1 + LOW_BITS], 2)
        position = one + 1 + LOW_BITS
        level += -(value + 1 >> 1) if value & 1 else value >> 1
        clip[number] = level
    return clip / 1024


class Birdsong(IterableDataset):
    """Goes through the archive in a new order whenever it has come to the end."""

    def __init__(self, samples, cached, seed):
        rng = np.random.default_rng(seed)
        walks = rng.normal(0, 40, size=(CLIPS, samples)).cumsum(axis=1).astype(int)
        self.codes = [packed(walk) for walk in walks]
        self.samples = samples
        self.clips = [unpacked(code, samples) for code in self.codes] if cached else None
        self.seed = seed

    def clip(self, number):
        if self.clips is not None:
            return self.clips[number]
        return unpacked(self.codes[number], self.samples)

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        remaining = STEPS * BATCH
        while remaining:
            for number in rng.permutation(CLIPS)[:remaining]:
                yield torch.from_numpy(self.clip(number)).unsqueeze(0)
                remaining -= 1


def autoencoder(width=24):
    return nn.Sequential(
        nn.Conv1d(1, width, 16, stride=4, padding=6),
        nn.ReLU(),
        nn.Conv1d(width, width, 8, stride=4, padding=2),
        nn.ReLU(),
        nn.ConvTranspose1d(width, width, 8, stride=4, padding=2),
        nn.ReLU(),
        nn.ConvTranspose1d(width, 1, 16, stride=4, padding=6),
    )


def main():
    args = arguments(__doc__)
    archive = Birdsong(32 * round(96 * args.severity), args.fixed, args.seed)
    model = autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    for clips in DataLoader(archive, batch_size=BATCH, num_workers=1):
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(clips), clips)
        loss.backward()
        optimizer.step()
        meter.update(len(clips))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
