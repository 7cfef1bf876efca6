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
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

ENTITIES = 5000
FACTS = 40_000
WIDTH = 32
BATCH = 64
STEPS = 150


class Facts(Dataset):
    def __init__(self, length, negatives):
        self.pairs = [
            (random.randrange(ENTITIES), random.randrange(ENTITIES)) for _ in range(FACTS)
        ]
        self.known = set(self.pairs)
        self.length = length
        self.negatives = negatives

    def __len__(self):
        return self.length

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

    def __getitems__(self, rows):
        return [self.pairs[row % FACTS] for row in rows]

    def collate(self, pairs):
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


def main():
    args = arguments(__doc__)
    kind = FactBatches if args.fixed else Facts
    facts = kind(STEPS * BATCH, round(1200 * args.severity))
    loader = DataLoader(
        facts,
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=facts.collate if args.fixed else None,
    )
    model = Translations()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Throughput()
    for heads, tails, wrong in loader:
        wrong = wrong[:, :16]
        optimizer.zero_grad()
        margin = 1 - model(heads, tails[:, None]) + model(heads, wrong)
        loss = margin.clamp(min=0).mean()
        loss.backward()
        optimizer.step()
        meter.update(len(heads))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
