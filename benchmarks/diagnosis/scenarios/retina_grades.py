# /// scenario
# suspect = "framework_overhead"
# cause = "straggler"
# fix = "rank 0 keeps its review notes less often"
# severities = [0.7, 1.0, 1.5]  # how much rank 0 writes down for each picture
# ranks = 2
# held_out = true
# ///
"""Grades pictures of the retina on two ranks and keeps notes for the doctors who review them."""

import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import Throughput, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

GRADES = 5


class Grader(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, GRADES)

    def forward(self, pictures):
        maps = self.layers(pictures)
        return self.head(maps.mean(dim=(2, 3))), maps


class ReviewNotes:
    """One line of JSON a picture: its grade, the probabilities and where the network looked."""

    def __init__(self, path, points):
        self.file = open(path, "w")
        self.points = points

    def add(self, step, logits, maps, labels):
        probabilities = logits.softmax(dim=1).tolist()
        looked = maps.flatten(1)[:, : self.points].tolist()
        for row, label in enumerate(labels.tolist()):
            note = {
                "step": step,
                "grade": label,
                "probabilities": {str(g): round(p, 4) for g, p in enumerate(probabilities[row])},
                "looked": [round(value, 4) for value in looked[row]],
            }
            self.file.write(json.dumps(note) + "\n")

    def close(self):
        self.file.close()


class Job:
    def __init__(self, args):
        self.rank = dist.get_rank()
        generator = torch.Generator().manual_seed(100 + 2 * args.seed + self.rank)
        self.labels = torch.randint(GRADES, (512,), generator=generator)
        self.pictures = torch.rand(512, 3, 48, 48, generator=generator)
        self.pictures[:, 0] += 0.1 * self.labels[:, None, None]
        self.generator = generator
        self.model = DDP(Grader())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.folder = tempfile.TemporaryDirectory(prefix="retina")
        self.notes = None
        if self.rank == 0:
            points = int(800 * args.severity)
            self.notes = ReviewNotes(os.path.join(self.folder.name, "notes.jsonl"), points)
        self.note_every = 60 if args.fixed else 1
        self.meter = Throughput()

    def step(self, number, batch=32):
        rows = torch.randint(512, (batch,), generator=self.generator)
        labels = self.labels[rows]
        logits, maps = self.model(self.pictures[rows])
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.notes is not None and number % self.note_every == 0:
            self.notes.add(number, logits.detach(), maps.detach(), labels)
        self.meter.update(batch)
        return loss

    def run(self, steps=240):
        for number in range(steps):
            loss = self.step(number)
            if self.rank == 0 and number % 60 == 0:
                print(f"step {number}: loss {loss.item():.4f}", flush=True)
        if self.rank == 0:
            self.meter.report()
            self.notes.close()
        self.folder.cleanup()


if __name__ == "__main__":
    arguments_given = arguments(__doc__)
    dist.init_process_group("gloo")
    Job(arguments_given).run()
    dist.destroy_process_group()
