# /// scenario
# suspect = "data_pipeline"
# cause = "slow_collate"
# stage = "collate"
# fix = "make collating one vectorised operation"
# severities = [0.7, 1.0, 1.5]  # words per sentence
# quick = true
# ///
"""Trains a sentence classifier on sentences of different lengths."""

import numpy as np
import torch
from common import TextClassifier, Throughput, arguments
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS = 4000
SENTENCES = 800
BATCH = 48
STEPS = 150


class Sentences(Dataset):
    def __init__(self, length, longest):
        lengths = np.random.randint(longest // 2, longest + 1, size=SENTENCES)
        self.sentences = [np.random.randint(1, WORDS, size=n) for n in lengths]
        self.labels = np.random.randint(0, 2, size=SENTENCES)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.sentences[index % SENTENCES], int(self.labels[index % SENTENCES])


def to_batch(samples):
    longest = max(len(sentence) for sentence, _ in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.long)
    labels = torch.zeros(len(samples), dtype=torch.long)
    for row, (sentence, label) in enumerate(samples):
        labels[row] = label
        for column in range(len(sentence)):
            tokens[row, column] = int(sentence[column])
    return tokens, labels


def to_batch_at_once(samples):
    sentences, labels = zip(*samples, strict=True)
    tokens = pad_sequence([torch.from_numpy(sentence) for sentence in sentences], batch_first=True)
    return tokens, torch.tensor(labels)


def main():
    args = arguments(__doc__)
    loader = DataLoader(
        Sentences(STEPS * BATCH, round(260 * args.severity)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=to_batch_at_once if args.fixed else to_batch,
    )
    model = TextClassifier(WORDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for tokens, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(tokens), labels)
        loss.backward()
        optimizer.step()
        meter.update(len(labels))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
