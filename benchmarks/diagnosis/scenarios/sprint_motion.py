# /// scenario
# suspect = "data_pipeline"
# cause = "worker_startup"
# fix = "persistent_workers=True"
# severities = [0.7, 1.0, 1.5]  # size of the calibration that a worker reads when it starts
# held_out = true
# ///
"""Recognition of sprinters' gait phases from motion capture, many short epochs of few recordings."""

import json
import os
import tempfile

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

MARKERS = 39
FRAMES = 24
PHASES = 6


class MotionCapture(Dataset):
    def __init__(self, recordings, calibration_file, rng):
        self.frames = rng.normal(size=(recordings, FRAMES, MARKERS, 3)).astype(np.float32)
        self.phases = rng.integers(0, PHASES, size=recordings)
        self.calibration_file = calibration_file
        self.offsets = None

    def calibrate(self):
        """Reads the offset of every marker on every day of recording."""
        with open(self.calibration_file) as file:
            sessions = json.load(file)
        self.offsets = np.array(
            [session["offsets"] for session in sessions.values()], dtype=np.float32
        )

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        frames = self.frames[index] - self.offsets[index % len(self.offsets)]
        return frames.reshape(-1), self.phases[index]


def start_worker(number):
    get_worker_info().dataset.calibrate()


def write_calibration(path, sessions, rng):
    table = {
        f"session-{number:04d}": {
            "camera": "north" if number % 2 else "south",
            "offsets": rng.normal(0, 0.01, size=(MARKERS, 3)).round(6).tolist(),
        }
        for number in range(sessions)
    }
    with open(path, "w") as file:
        json.dump(table, file)


class Experiment:
    def __init__(self, loader, epochs):
        self.loader = loader
        self.epochs = epochs
        self.model = perceptron(FRAMES * MARKERS * 3, 512, PHASES, depth=3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.criterion = nn.CrossEntropyLoss()
        self.throughput = Throughput()
        self.history = []

    def run(self):
        for epoch in range(self.epochs):
            self.history.append(self.run_epoch())
            if (epoch + 1) % 10 == 0:
                print(f"after {epoch + 1} epochs: {np.mean(self.history[-10:]):.4f}")

    def run_epoch(self):
        self.model.train()
        total = 0.0
        for frames, phases in self.loader:
            loss = self.criterion(self.model(frames), phases)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            self.throughput.update(len(phases))
        return total / len(self.loader)


if __name__ == "__main__":
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        calibration_file = os.path.join(folder, "calibration.json")
        write_calibration(calibration_file, int(1200 * args.severity), rng)
        loader = DataLoader(
            MotionCapture(6 * 48, calibration_file, rng),
            batch_size=48,
            shuffle=True,
            num_workers=2,
            worker_init_fn=start_worker,
            persistent_workers=args.fixed,
        )
        experiment = Experiment(loader, epochs=36)
        experiment.run()
    experiment.throughput.report()
