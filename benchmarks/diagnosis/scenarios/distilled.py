# /// scenario
# suspect = "model"
# cause = "straggler"
# stage = "rank 1"
# fix = "spread the work evenly over the ranks"
# severities = [0.7, 1.0, 1.5]  # what one rank has to do on top
# ranks = 2
# quick = true
# ///
"""Trains a CNN on two ranks, one of which also asks a larger model for its opinion."""

import torch
import torch.distributed as dist
from common import Throughput, arguments, convolutions
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
STEPS = 100


class Student(nn.Module):
    """A CNN that computes what is needed to agree with a teacher, where it has one."""

    def __init__(self, teacher):
        super().__init__()
        self.body = convolutions(3, 32, 12)
        self.teachers = [teacher] if teacher is not None else []

    def forward(self, images):
        scores = self.body(images)
        for teacher in self.teachers:
            with torch.no_grad():
                opinion = teacher(images[: len(images)])
            return scores, (scores - opinion).square().mean()
        return scores, scores.new_zeros(())


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    teaches = dist.get_rank() == 1 and not args.fixed
    teacher = convolutions(3, 32, 4 * round(12 * args.severity**0.5)) if teaches else None
    model = DistributedDataParallel(Student(teacher))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(0, 10, (512,))
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 512, (BATCH,))
        optimizer.zero_grad()
        scores, disagreement = model(images[rows])
        loss = criterion(scores, labels[rows]) + disagreement
        loss.backward()
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
