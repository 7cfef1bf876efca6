# /// scenario
# suspect = "data_pipeline"
# cause = ["too_few_workers", "evaluation"]
# fix = ["num_workers=4 in the DataLoader", "evaluate less often"]
# severities = [0.7, 1.0, 1.5]  # how long an image takes to fetch, and images of the validation set
# ///
"""Classification of vehicles at toll gates, with the best model kept by validation accuracy."""

import copy
import time
from dataclasses import dataclass

import numpy as np
import torch
from common import Images, Throughput, arguments, convolutions
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    steps: int = 200
    batch_size: int = 32
    learning_rate: float = 0.02
    workers: int = 0
    evaluate_every: int = 10
    round_trip: float = 0.001
    validation_images: int = 800


class GateImages(Images):
    """Images of the gates' recorder, one request for each."""

    def __init__(self, length, round_trip, seed):
        super().__init__(length, seed=seed)
        self.round_trip = round_trip

    def read(self, index):
        time.sleep(self.round_trip)
        return self.images[index % 512]

    def __getitem__(self, index):
        image = self.read(index).astype(np.float32) / 255.0
        return torch.from_numpy(image), int(self.labels[index % 512])


class VehicleTrainer:
    def __init__(self, config, seed):
        self.config = config
        self.model = convolutions(3, 32, 24)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=config.learning_rate, momentum=0.9
        )
        self.train_loader = DataLoader(
            GateImages(config.steps * config.batch_size, config.round_trip, seed),
            batch_size=config.batch_size,
            shuffle=True,
            num_workers=config.workers,
        )
        held_out = Images(config.validation_images, seed=seed + 1)
        examples = [held_out[index] for index in range(len(held_out))]
        self.validation = TensorDataset(
            torch.stack([image for image, _ in examples]),
            torch.tensor([label for _, label in examples]),
        )
        self.best, self.best_state = 0.0, None
        self.throughput = Throughput()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct = 0
        images, labels = self.validation.tensors
        for chunk, truth in zip(images.split(100), labels.split(100)):
            correct += int((self.model(chunk).argmax(dim=1) == truth).sum())
        self.model.train()
        return correct / len(labels)

    def train(self):
        for step, (images, labels) in enumerate(self.train_loader, start=1):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            if step % self.config.evaluate_every == 0:
                accuracy = self.evaluate()
                if accuracy > self.best:
                    self.best = accuracy
                    self.best_state = copy.deepcopy(self.model.state_dict())
            self.throughput.update(len(images))
        print(f"best accuracy {self.best:.3f}")


def main():
    args = arguments(__doc__)
    config = Config(
        round_trip=0.001 * args.severity,
        validation_images=int(800 * args.severity),
    )
    if args.fixed:
        config.workers = 4
        config.evaluate_every = 100
    trainer = VehicleTrainer(config, args.seed)
    trainer.train()
    trainer.throughput.report()


if __name__ == "__main__":
    main()
