# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# fix = "move work out of the loop: match boxes with tensor operations"
# severities = [0.6, 1.0, 1.6]  # vehicles in a picture
# ///
"""Trains a detector of vehicles; each of them is matched to the box that fits it best."""

import torch
from common import Throughput, arguments
from torch import nn

CELLS = 8
BATCH = 16
STEPS = 250


class Detector(nn.Module):
    """One box for each cell of the picture: corners, and whether there is something."""

    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 5, 1),
        )
        rows, columns = torch.meshgrid(torch.arange(CELLS), torch.arange(CELLS), indexing="ij")
        self.register_buffer("centres", torch.stack([columns, rows], dim=-1).view(-1, 2) + 0.5)

    def forward(self, pictures):
        cells = self.body(pictures).flatten(2).transpose(1, 2)
        sizes = nn.functional.softplus(cells[..., :4])
        boxes = torch.cat([self.centres - sizes[..., :2], self.centres + sizes[..., 2:]], dim=-1)
        return boxes, cells[..., 4]


def overlap(first, second):
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return shared / (areas[0] + areas[1] - shared)


def match_boxes(boxes, vehicles):
    """The best box of each vehicle."""
    return torch.tensor(
        [
            [
                max(range(len(predicted)), key=lambda cell: overlap(predicted[cell], box))
                for box in real
            ]
            for predicted, real in zip(boxes.tolist(), vehicles.tolist(), strict=True)
        ]
    )


def match_tensors(boxes, vehicles):
    boxes, vehicles = boxes.unsqueeze(1), vehicles.unsqueeze(2)
    corners = torch.minimum(boxes[..., 2:], vehicles[..., 2:])
    shared = (corners - torch.maximum(boxes[..., :2], vehicles[..., :2])).clamp(min=0).prod(dim=-1)
    areas = [(edges[..., 2:] - edges[..., :2]).prod(dim=-1) for edges in (boxes, vehicles)]
    return (shared / (areas[0] + areas[1] - shared)).argmax(dim=2)


def main():
    args = arguments(__doc__)
    count = round(20 * args.severity)
    pictures = torch.rand(512, 3, 64, 64)
    corners = torch.rand(512, count, 2) * (CELLS - 2)
    vehicles = torch.cat([corners, corners + 0.5 + 1.5 * torch.rand(512, count, 2)], dim=2)
    match = match_tensors if args.fixed else match_boxes
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        boxes, present = model(pictures[rows])
        cells = match(boxes.detach(), vehicles[rows])
        fitted = boxes.gather(1, cells.unsqueeze(2).expand(-1, -1, 4))
        occupied = torch.zeros_like(present).scatter_(1, cells, 1.0)
        loss = nn.functional.l1_loss(fitted, vehicles[rows])
        loss = loss + nn.functional.binary_cross_entropy_with_logits(present, occupied)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
