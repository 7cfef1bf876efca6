# /// scenario
# suspect = "model"
# cause = "compute"
# fix = "a cheaper output layer: a softmax over sampled products, not over all"
# severities = [0.8, 1.0, 1.3]  # products
# ///
"""Trains a sequential recommender: the next product after each one that was bought."""

import argparse

import torch
from common import Throughput
from torch import nn

BASKET = 32
BATCH = 24
STEPS = 36
SAMPLED = 1000


class Recommender(nn.Module):
    def __init__(self, products, width=96):
        super().__init__()
        self.product = nn.Embedding(products, width)
        self.place = nn.Parameter(torch.zeros(BASKET, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(BASKET)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, bought, candidates=None):
        hidden = self.encoder(self.product(bought) + self.place, mask=self.mask)
        weight = self.product.weight if candidates is None else self.product(candidates)
        return hidden @ weight.T


def loss_of(model, bought, following, sampled):
    if not sampled:
        return nn.functional.cross_entropy(model(bought).flatten(0, 1), following.flatten())
    targets, target_index = following.unique(return_inverse=True)
    negatives = torch.randint(model.product.num_embeddings, (SAMPLED,))
    return nn.functional.cross_entropy(
        model(bought, torch.cat([targets, negatives])).flatten(0, 1), target_index.flatten()
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    products = round(30_000 * args.severity)
    baskets = torch.randint(products, (2000, BASKET + 1))
    model = Recommender(products)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Throughput(warm_up=5)
    for _ in range(STEPS):
        rows = baskets[torch.randint(2000, (BATCH,))]
        loss = loss_of(model, rows[:, :-1], rows[:, 1:], args.fixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
