# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a protein classifier; sequences of about one length come together in a batch."""

import random

import torch
from common import Throughput, arguments
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Sampler

ACIDS = 21
BATCH = 16
STEPS = 160


class Proteins(Dataset):
    def __init__(self, count, shortest, longest, family):
        lengths = torch.randint(shortest, longest, (count,)).tolist()
        self.chains = [torch.randint(1, ACIDS, (length,)) for length in lengths]
        self.family = family

    def __len__(self):
        return len(self.chains)

    def __getitem__(self, index):
        return self.chains[index], self.family


class Buckets(Sampler):
    """Batches of neighbours in length, in random order."""

    def __init__(self, proteins):
        self.order = sorted(range(len(proteins)), key=lambda index: len(proteins[index][0]))

    def __len__(self):
        return STEPS

    def __iter__(self):
        buckets = [self.order[start : start + BATCH] for start in range(0, len(self.order), BATCH)]
        for _ in range(STEPS):
            yield random.choice(buckets)


def collate(samples):
    chains, families = zip(*samples, strict=True)
    return pad_sequence(chains, batch_first=True), torch.tensor(families)


class Encoder(nn.Module):
    def __init__(self, width, families):
        super().__init__()
        self.embed = nn.Embedding(ACIDS, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, families)

    def forward(self, chains):
        padding = chains == 0
        hidden = self.layers(self.embed(chains), src_key_padding_mask=padding)
        real = (~padding).unsqueeze(2)
        return self.head((hidden * real).sum(dim=1) / real.sum(dim=1))


def main():
    args = arguments(__doc__)
    sizes = [(200, 30, 60), (300, 40, 110), (140, 80, 150)]
    families = [Proteins(*size, family) for family, size in enumerate(sizes)]
    proteins = ConcatDataset(families)
    loader = DataLoader(
        proteins, batch_sampler=Buckets(proteins), collate_fn=collate, num_workers=1
    )
    model = Encoder(16 * round(8 * args.severity), len(families))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    meter = Throughput()
    for chains, family in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(chains), family)
        loss.backward()
        optimizer.step()
        meter.update(len(family))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
