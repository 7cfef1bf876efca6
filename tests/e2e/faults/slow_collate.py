"""Planted fault: the collate function pads token by token in Python.

Reading a sample costs nothing; putting the batch together costs more than training on it.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_collate"

VOCABULARY = 2000
SENTENCES = 1024
MAX_LENGTH = 160
BATCH = 80


class Sentences(Dataset):
    def __init__(self, length):
        rng = np.random.default_rng(0)
        lengths = rng.integers(MAX_LENGTH // 2, MAX_LENGTH + 1, size=SENTENCES)
        self.sentences = [rng.integers(1, VOCABULARY, size=n) for n in lengths]
        self.labels = rng.integers(0, 2, size=SENTENCES)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.sentences[index % SENTENCES], int(self.labels[index % SENTENCES])


def pad_collate(samples):
    """Pads every sentence to the longest of the batch and marks which positions are real."""
    longest = max(len(sentence) for sentence, _ in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.long)
    mask = torch.zeros(len(samples), longest)
    labels = torch.zeros(len(samples), dtype=torch.long)
    for row, (sentence, label) in enumerate(samples):
        for position, token in enumerate(sentence):
            tokens[row, position] = int(token)
            mask[row, position] = 1.0
        labels[row] = label
    return tokens, mask, labels


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 2)

    def forward(self, tokens, mask):
        hidden = self.body(self.embedding(tokens)) * mask[..., None]
        return self.head(hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True))


def main():
    parser = argparse.ArgumentParser(description="Trains a text classifier on padded batches.")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Sentences(args.steps * BATCH), batch_size=BATCH, num_workers=2, collate_fn=pad_collate
    )
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()

    for tokens, mask, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(tokens, mask), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
