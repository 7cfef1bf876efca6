# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a classifier of engine sounds on spectrograms that a thread puts into a queue."""

import queue
import threading

import numpy as np
import torch
from common import Throughput, arguments, convolutions
from torch import nn

SAMPLES = 16384
FRAME = 512
BINS = 64
BATCH = 24
STEPS = 340


class Feeder(threading.Thread):
    """Keeps a few batches ready."""

    def __init__(self, sounds, labels, ahead=4):
        super().__init__(daemon=True)
        self.sounds, self.labels = sounds, labels
        self.window = np.hanning(FRAME).astype(np.float32)
        self.ready = queue.Queue(ahead)

    def spectrograms(self, sounds):
        frames = np.lib.stride_tricks.sliding_window_view(sounds, FRAME, axis=1)[:, :: FRAME // 2]
        power = np.abs(np.fft.rfft(frames * self.window, axis=-1)[..., 1:])
        bands = power.reshape(*power.shape[:2], BINS, -1).mean(axis=-1)
        return np.log1p(np.pad(bands, ((0, 0), (0, 1), (0, 0)))).astype(np.float32)

    def run(self):
        rng = np.random.default_rng(0)
        for _ in range(STEPS):
            rows = rng.integers(0, len(self.sounds), size=BATCH)
            images = self.spectrograms(self.sounds[rows])[:, None, :, :]
            self.ready.put((torch.from_numpy(images), torch.from_numpy(self.labels[rows])))
        self.ready.put(None)

    def __iter__(self):
        self.start()
        return iter(self.ready.get, None)


def main():
    args = arguments(__doc__)
    sounds = np.random.standard_normal((400, SAMPLES)).astype(np.float32)
    labels = np.random.randint(0, 10, size=400)
    model = convolutions(1, BINS, 4 * round(4 * args.severity))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    meter = Throughput()
    for images, kinds in Feeder(sounds, labels):
        optimizer.zero_grad()
        loss = criterion(model(images), kinds)
        loss.backward()
        optimizer.step()
        meter.update(len(kinds))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
