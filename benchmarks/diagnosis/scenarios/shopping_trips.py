# /// scenario
# suspect = "data_pipeline"
# cause = ["inline_data_preparation", "optimizer"]
# fix = [
#     "prepare batches beside the training thread, or for the whole batch at once",
#     "update only what changed: sparse embedding with SparseAdam",
# ]
# severities = [0.8, 1.0, 1.3]  # both: rows of the table, negative products per trip
# ///
"""Trains a recommender on shopping trips: what was bought, and what could have been."""

import random
from bisect import bisect

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn

TRIPS = 3000
LENGTH = 12
BATCH = 48
STEPS = 320


class Recommender(nn.Module):
    def __init__(self, products, sparse, width=16):
        super().__init__()
        self.products = nn.Embedding(products, width, sparse=sparse)
        self.mix = nn.GRU(width, width, batch_first=True)

    def forward(self, history, candidates):
        _, state = self.mix(self.products(history))
        return torch.einsum("bw,bcw->bc", state[0], self.products(candidates))


class Trips:
    def __init__(self, products, negatives):
        self.bought = [random.choices(range(products), k=LENGTH + 1) for _ in range(TRIPS)]
        self.table = np.array(self.bought)
        popularity = np.random.pareto(3.0, size=products).cumsum()
        self.reached = popularity / popularity[-1]
        self.negatives = negatives

    def one_by_one(self):
        """Trips at random, each with popular products that are not in it."""
        reached = self.reached.tolist()
        while True:
            history, candidates = [], []
            for trip in random.choices(self.bought, k=BATCH):
                products = set(trip)
                negatives = []
                while len(negatives) < self.negatives:
                    product = bisect(reached, random.random())
                    if product not in products:
                        products.add(product)
                        negatives.append(product)
                history.append(trip[:-1])
                candidates.append([trip[-1], *negatives])
            yield torch.tensor(history), torch.tensor(candidates)

    def all_at_once(self):
        while True:
            trips = self.table[np.random.randint(0, TRIPS, size=BATCH)]
            chances = np.random.random((BATCH, self.negatives))
            negatives = np.searchsorted(self.reached, chances, side="right")
            candidates = np.concatenate([trips[:, -1:], negatives], axis=1)
            yield torch.from_numpy(trips[:, :-1]), torch.from_numpy(candidates)


def main():
    args = arguments(__doc__)
    products = round(120_000 * args.severity)
    trips = Trips(products, round(260 * args.severity))
    model = Recommender(products, sparse=args.fixed)
    table, rest = list(model.products.parameters()), list(model.mix.parameters())
    if args.fixed:
        optimizers = [torch.optim.SparseAdam(table), torch.optim.Adam(rest)]
    else:
        optimizers = [torch.optim.Adam([*table, *rest])]
    batches = trips.all_at_once() if args.fixed else trips.one_by_one()
    bought = torch.zeros(BATCH, dtype=torch.long)
    meter = Throughput()
    for _, (history, candidates) in zip(range(STEPS), batches, strict=False):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(history, candidates), bought)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
