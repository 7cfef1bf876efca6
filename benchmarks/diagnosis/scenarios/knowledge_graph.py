# /// scenario
# suspect = "data_pipeline"
# cause = "slow_dataset"
# fix = "move what the dataset's own code does for each sample into one call for the batch"
# severities = [0.7, 1.0, 1.5]  # negatives per fact
# ///
"""Trains embeddings of a knowledge graph against facts that are not in it."""

import random

import numpy as np
import torch
from common import Samples, arguments, sgd, train
from torch import nn
from torch.utils.data import DataLoader

ENTITIES = 5000
FACTS = 40_000
WIDTH = 32
BATCH = 64


class Facts(Samples):
    def __init__(self, length, negatives):
        super().__init__(length)
        self.pairs = [
            (random.randrange(ENTITIES), random.randrange(ENTITIES)) for _ in range(FACTS)
        ]
        self.known = set(self.pairs)
        self.negatives = negatives
        self.collate = None

    def corrupted(self, head):
        """Tails that do not belong to a head."""
        tails = []
        while len(tails) < self.negatives:
            tail = random.randrange(ENTITIES)
            if (head, tail) not in self.known:
                tails.append(tail)
        return tails

    def __getitem__(self, index):
        head, tail = self.pairs[index % FACTS]
        return head, tail, np.array(self.corrupted(head))


class FactBatches(Facts):
    """The same with a whole batch for an index; a rare true fact among the others does no harm."""

    def __init__(self, length, negatives):
        super().__init__(length, negatives)
        self.collate = self.as_tensors

    def __getitems__(self, rows):
        return [self.pairs[row % FACTS] for row in rows]

    def as_tensors(self, pairs):
        heads, tails = torch.tensor(pairs).T
        return heads, tails, torch.randint(0, ENTITIES, (len(pairs), self.negatives))


class Translations(nn.Module):
    def __init__(self):
        super().__init__()
        self.entities = nn.Embedding(ENTITIES, WIDTH, sparse=True)
        self.shift = nn.Embedding(1, WIDTH, sparse=True)

    def forward(self, heads, tails):
        expected = self.entities(heads) + self.shift.weight[0]
        return -(expected[:, None] - self.entities(tails)).square().sum(dim=-1)


def compute_loss(model, heads, tails, wrong):
    margin = 1 - model(heads, tails[:, None]) + model(heads, wrong[:, :16])
    return margin.clamp(min=0).mean()


def main():
    args = arguments(__doc__)
    kind = FactBatches if args.fixed else Facts
    facts = kind(150 * BATCH, round(1200 * args.severity))
    loader = DataLoader(facts, BATCH, shuffle=True, num_workers=2, collate_fn=facts.collate)
    model = Translations()
    train(model, sgd(model, 0.1, 0), loader, compute_loss)


if __name__ == "__main__":
    main()
