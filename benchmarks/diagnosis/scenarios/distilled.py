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
from common import (
    RANK,
    arguments,
    convolutions,
    criterion,
    random_images,
    sampled,
    sgd,
    share,
    train,
)
from torch import nn


class Student(nn.Module):
    """A CNN that computes what is needed to agree with a teacher, where it has one."""

    def __init__(self, teacher):
        super().__init__()
        self.body = convolutions(width=12)
        self.teachers = [teacher] if teacher is not None else []

    def forward(self, images):
        scores = self.body(images)
        for teacher in self.teachers:
            with torch.no_grad():
                opinion = teacher(images)
            return scores, (scores - opinion).square().mean()
        return scores, scores.new_zeros(())


def compute_loss(model, images, labels):
    scores, disagreement = model(images)
    return criterion(scores, labels) + disagreement


def main():
    args = arguments(__doc__)
    teaches = RANK == 1 and not args.fixed
    teacher = convolutions(width=4 * round(12 * args.severity**0.5)) if teaches else None
    model = share(Student(teacher))
    train(model, sgd(model, momentum=0), sampled(random_images(), 16, 100), compute_loss)


if __name__ == "__main__":
    main()
