# /// scenario
# suspect = "data_pipeline"
# cause = ["too_few_workers", "evaluation"]
# fix = ["num_workers=4 in the DataLoader", "evaluate less often"]
# severities = [0.7, 1.0, 1.5]  # how long an image takes to fetch, and images of the validation set
# ///
"""Classification of vehicles at toll gates, with the best model kept by validation accuracy."""

import copy
import time

import torch
from common import Images, arguments, convolutions, sgd, train
from torch.utils.data import DataLoader, default_collate

BATCH = 32


class GateImages(Images):
    """Images of the gates' recorder, one request for each."""

    def __init__(self, length, round_trip, seed):
        super().__init__(length, seed=seed)
        self.round_trip = round_trip

    def __getitem__(self, index):
        time.sleep(self.round_trip)
        return super().__getitem__(index)


class BestModel:
    def __init__(self, model, images, seed, interval):
        held_out = Images(images, seed=seed + 1)
        self.images, self.labels = default_collate([held_out[row] for row in range(images)])
        self.model, self.interval = model, interval
        self.accuracy, self.state = 0.0, None

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct = 0
        for chunk, truth in zip(self.images.split(100), self.labels.split(100), strict=True):
            correct += int((self.model(chunk).argmax(dim=1) == truth).sum())
        self.model.train()
        return correct / len(self.labels)

    def after_step(self, step, _):
        if step % self.interval == 0:
            accuracy = self.evaluate()
            if accuracy > self.accuracy:
                self.accuracy = accuracy
                self.state = copy.deepcopy(self.model.state_dict())


def main():
    args = arguments(__doc__)
    dataset = GateImages(200 * BATCH, 0.001 * args.severity, args.seed)
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=4 if args.fixed else 0)
    model = convolutions(width=24)
    best = BestModel(model, int(800 * args.severity), args.seed, 100 if args.fixed else 10)
    train(model, sgd(model, 0.02), loader, after_step=best.after_step)


if __name__ == "__main__":
    main()
