# /// scenario
# suspect = "data_pipeline"
# cause = "inline_data_preparation"
# fix = "prepare less in every step: cut the recipes into pieces once and keep the result"
# severities = [0.7, 1.0, 1.5]  # the words that a recipe has
# ///
"""Classifies recipes by their pieces of words; cuts the next ones between the passes."""

import random
import re

import torch
from common import Throughput, arguments
from torch import nn

PIECES = 4000
BATCH = 48
STEPS = 220
SYLLABLES = ["ba", "ko", "rin", "tel", "mu", "sha", "por", "li", "ze", "gan", "tor", "vi"]


class Pieces:
    """Cuts words into the longest pieces that it knows."""

    def __init__(self, pieces):
        self.numbers = {piece: number for number, piece in enumerate(pieces, 1)}

    def cut(self, recipe):
        numbers = []
        for word in re.findall(r"[a-z]+", recipe.lower()):
            start = 0
            while start < len(word):
                end = len(word)
                while end > start + 1 and word[start:end] not in self.numbers:
                    end -= 1
                numbers.append(self.numbers.get(word[start:end], 0))
                start = end
        return torch.tensor(numbers)


class Kitchen(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.pieces = nn.EmbeddingBag(PIECES + 1, width)
        self.layers = nn.Sequential(
            nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 12)
        )

    def forward(self, numbers, offsets):
        return self.layers(self.pieces(numbers, offsets))


def join(parts):
    """Make one row of all numbers, with the position at which each recipe starts."""
    lengths = torch.tensor([0] + [len(recipe) for recipe in parts[:-1]])
    return torch.cat(parts), lengths.cumsum(0)


def main():
    args = arguments(__doc__)
    words = ["".join(random.choices(SYLLABLES, k=random.randint(1, 4))) for _ in range(3000)]
    pieces = Pieces(sorted({word[:cut] for word in words for cut in (2, 3, 5)})[:PIECES])
    length = round(60 * args.severity)
    recipes = [" ".join(random.choices(words, k=length)) for _ in range(2000)]
    kinds = torch.randint(0, 12, (len(recipes),))
    cut_recipes = [pieces.cut(recipe) for recipe in recipes] if args.fixed else None
    model, criterion = Kitchen(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def prepare(rows):
        if cut_recipes is not None:
            return join([cut_recipes[row] for row in rows])
        return join([pieces.cut(recipes[row]) for row in rows])

    meter = Throughput()
    rows = random.sample(range(len(recipes)), BATCH)
    batch = prepare(rows)
    for step in range(STEPS):
        scores = model(*batch)
        following = random.sample(range(len(recipes)), BATCH)
        batch = prepare(following)
        loss = criterion(scores, kinds[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows = following
        meter.update(BATCH)
        if step % 100 == 0:
            print(f"{step}: {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
