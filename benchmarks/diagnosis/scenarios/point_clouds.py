# /// scenario
# suspect = "data_pipeline"
# cause = "batch_handover"
# stage = "handing over"
# accept = ["data_pipeline/slow_collate"]  # the workers pay for the many tensors as well
# fix = "make batches cheaper to hand over: return few large tensors rather than many small objects"
# severities = [0.7, 1.0, 1.5]  # objects per scene
# ///
"""Trains a detector on scenes of objects, each with its own few tensors."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENES = 128
BATCH = 16
STEPS = 150
POINTS = 8


class Scenes(Dataset):
    def __init__(self, length, objects):
        self.points = np.random.randn(SCENES, objects, POINTS, 3).astype(np.float32)
        self.boxes = np.random.randn(SCENES, objects, 6).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.from_numpy(self.points[index % SCENES]), torch.from_numpy(
            self.boxes[index % SCENES]
        )


def as_objects(samples):
    """A list of scenes, each a list of its objects."""
    return [
        [{"points": p.clone(), "box": b.clone()} for p, b in zip(points, boxes, strict=True)]
        for points, boxes in samples
    ]


def packed(samples):
    points, boxes = zip(*samples, strict=True)
    return torch.cat(points), torch.cat(boxes)


def from_objects(scenes):
    objects = [item for scene in scenes for item in scene]
    return torch.stack([o["points"] for o in objects]), torch.stack([o["box"] for o in objects])


def main():
    args = arguments(__doc__)
    objects = round(9 * args.severity)
    loader = DataLoader(
        Scenes(STEPS * BATCH, objects),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=packed if args.fixed else as_objects,
    )
    model = perceptron(3 * POINTS, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = Throughput()
    for batch in loader:
        points, boxes = batch if args.fixed else from_objects(batch)
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(points.flatten(1)), boxes)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
