# /// scenario
# suspect = "data_pipeline"
# cause = "uneven_ranks"
# stage = "rank 1"
# accept = ["model/uneven_ranks", "model/straggler"]
# fix = "give the ranks even data: shuffle before sharding, or bucket by length"
# severities = [0.7, 1.0, 1.5]  # how far the lengths are apart
# ranks = 2
# quick = true
# ///
"""Trains a sentence encoder on two ranks; the corpus is split in the order of its files."""

import torch
import torch.distributed as dist
from common import Throughput, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS = 2000
WIDTH = 128
SENTENCES = 1024
BATCH = 16
STEPS = 80


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        return self.head(self.layer(self.words(tokens)).mean(dim=1))


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    longest = round(24 + 170 * args.severity)
    lengths = (8 + (longest - 8) * torch.linspace(0, 1, SENTENCES) ** 3).long()
    share = SENTENCES // 2
    if args.fixed:
        mine = torch.randperm(SENTENCES, generator=torch.Generator().manual_seed(args.seed))
        mine = mine[dist.get_rank() :: 2]
        near = lengths[mine].argsort()
        mine = mine[near]
    else:
        mine = torch.arange(share) + share * dist.get_rank()
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    starts = torch.randint(
        0, share - BATCH, (STEPS,), generator=torch.Generator().manual_seed(args.seed)
    )
    meter = Throughput()
    for start in starts:
        rows = mine[start : start + BATCH]
        tokens = torch.randint(0, WORDS, (BATCH, int(lengths[rows].max())))
        labels = torch.randint(0, 2, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(tokens), labels)
        loss.backward()
        optimizer.step()
        meter.update(2 * BATCH)
    if dist.get_rank() == 0:
        print(f"final loss {loss.item():.4f}")
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
