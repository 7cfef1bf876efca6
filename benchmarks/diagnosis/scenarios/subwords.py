# /// scenario
# suspect = "data_pipeline"
# cause = "slow_tokenisation"
# stage = "tokenise"
# fix = "tokenise once and store the ids"
# severities = [0.7, 1.0, 1.5]  # characters per text
# quick = true
# ///
"""Trains a text classifier on raw text, split into subwords as it is read."""

import random
import string

import torch
from common import Samples, arguments, perceptron, sgd, train
from torch import nn
from torch.utils.data import DataLoader

PIECES = 3000
MAX_PIECE = 8
TEXTS = 400
LENGTH = 256
BATCH = 32


class Tokenizer:
    """Takes the longest piece of the vocabulary, again and again."""

    def __init__(self):
        letters = string.ascii_lowercase + " "
        pieces = set(letters)
        while len(pieces) < PIECES:
            pieces.add("".join(random.choices(letters, k=random.randint(2, MAX_PIECE))))
        self.ids = {piece: number for number, piece in enumerate(sorted(pieces), start=1)}

    def encode(self, text):
        tokens = []
        position = 0
        while position < len(text):
            for size in range(MAX_PIECE, 0, -1):
                number = self.ids.get(text[position : position + size])
                if number is not None:
                    tokens.append(number)
                    position += size
                    break
        return tokens


class Reviews(Samples):
    def __init__(self, length, characters, stored):
        super().__init__(length)
        letters = string.ascii_lowercase + "     "
        self.texts = ["".join(random.choices(letters, k=characters)) for _ in range(TEXTS)]
        self.labels = [random.randrange(2) for _ in range(TEXTS)]
        self.tokenizer = Tokenizer()
        self.stored = [self.ids(text) for text in self.texts] if stored else None

    def ids(self, text):
        ids = self.tokenizer.encode(text)[:LENGTH]
        return torch.tensor(ids + [0] * (LENGTH - len(ids)))

    def __getitem__(self, index):
        row = index % TEXTS
        return self.stored[row] if self.stored else self.ids(self.texts[row]), self.labels[row]


class TextClassifier(nn.Module):
    """Perceptron on the mean of word vectors."""

    def __init__(self, words, width=64, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.head = perceptron(width, 4 * width, classes)

    def forward(self, tokens):
        real = (tokens != 0).unsqueeze(-1)
        hidden = self.embedding(tokens) * real
        return self.head(hidden.sum(dim=1) / real.sum(dim=1).clamp(min=1))


def main():
    args = arguments(__doc__)
    reviews = Reviews(150 * BATCH, round(1500 * args.severity), args.fixed)
    model = TextClassifier(PIECES + 1)
    train(model, sgd(model, 0.05, 0), DataLoader(reviews, BATCH, shuffle=True, num_workers=2))


if __name__ == "__main__":
    main()
