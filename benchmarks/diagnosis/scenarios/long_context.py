# /// scenario
# suspect = "model"
# cause = "compute"
# fix = "make the arithmetic cheaper: shorter context, fused attention"
# severities = [1.0, 1.2, 1.5]  # length of the context
# ///
"""Trains a character model that looks back a long way."""

import torch
from common import arguments, train
from torch import nn

CHARACTERS = 96
WIDTH = 192
HEADS = 6
BATCH = 4
STEPS = 40


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.body = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        parts = self.queries(self.before(hidden)).view(batch, length, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(2, 3) / (WIDTH / HEADS) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ value
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return hidden + self.body(self.after(hidden))


class Characters(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.places = nn.Parameter(torch.randn(length, WIDTH) / 10)
        self.embed = nn.Embedding(CHARACTERS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text):
        return self.head(self.blocks(self.embed(text) + self.places))


def pieces(text, length):
    for _ in range(STEPS):
        starts = torch.randint(0, len(text) - length - 1, (BATCH,))
        yield (torch.stack([text[start : start + length + 1] for start in starts]),)


def compute_loss(model, rows):
    scores = model(rows[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())


def main():
    args = arguments(__doc__)
    length = 128 if args.fixed else round(384 * args.severity)
    text = torch.randint(0, CHARACTERS, (100_000,))
    model = Characters(length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    train(model, optimizer, pieces(text, length), compute_loss, warm_up=4)


if __name__ == "__main__":
    main()
