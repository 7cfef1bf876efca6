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
from common import Samples, Throughput, arguments, perceptron, sgd
from torch import nn
from torch.utils.data import DataLoader

SCENES = 128
BATCH = 16
POINTS = 8


class Scenes(Samples):
    def __init__(self, length, objects):
        super().__init__(length)
        self.points = np.random.randn(SCENES, objects, POINTS, 3).astype(np.float32)
        self.boxes = np.random.randn(SCENES, objects, 6).astype(np.float32)

    def __getitem__(self, index):
        row = index % SCENES
        return torch.from_numpy(self.points[row]), torch.from_numpy(self.boxes[row])


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
    collate = packed if args.fixed else as_objects
    scenes = Scenes(150 * BATCH, round(9 * args.severity))
    loader = DataLoader(scenes, BATCH, shuffle=True, num_workers=2, collate_fn=collate)
    model = perceptron(3 * POINTS, 64, 6)
    optimizer = sgd(model, momentum=0)
    meter = Throughput()
    for batch in loader:
        points, boxes = batch if args.fixed else from_objects(batch)
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(model(points.flatten(1)), boxes)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    meter.report(loss)


if __name__ == "__main__":
    main()
