"""Planted fault: one worker tokenizes texts in a Python loop, for a model that embeds them.

Nothing trains.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SUSPECT = "data_pipeline"
CAUSE = "slow_tokenisation"

TEXTS = 1600
BATCH = 16
LENGTH = 128


def tokenize(text):
    merged = []
    for position in range(len(text)):
        pair = text[position : position + 2]
        merged.append(sum(ord(letter) * 31**power for power, letter in enumerate(pair)) % 997)
        merged[-1] = sum((merged[-1] + offset) % 997 for offset in range(20)) % 997
    return merged[:LENGTH]


class Texts(Dataset):
    def __len__(self):
        return TEXTS

    def __getitem__(self, index):
        return torch.tensor(tokenize(f"{index} is a text " * 60)[:LENGTH])


def main():
    torch.set_num_threads(1)
    model = nn.Sequential(nn.EmbeddingBag(997, 64), nn.Linear(64, 64)).eval()
    with torch.inference_mode():
        for batch in DataLoader(Texts(), BATCH, num_workers=1):
            model(batch)


if __name__ == "__main__":
    main()
