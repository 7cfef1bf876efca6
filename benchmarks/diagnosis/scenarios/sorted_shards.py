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
from common import RANK, TextEncoder, arguments, share, train

SENTENCES = 1024
BATCH = 16
STEPS = 80


def main():
    args = arguments(__doc__)
    longest = round(24 + 170 * args.severity)
    lengths = (8 + (longest - 8) * torch.linspace(0, 1, SENTENCES) ** 3).long()
    half = SENTENCES // 2
    if args.fixed:
        shuffled = torch.randperm(SENTENCES, generator=torch.Generator().manual_seed(args.seed))
        mine = shuffled[RANK::2]
        mine = mine[lengths[mine].argsort()]
    else:
        mine = torch.arange(half) + half * RANK
    model = share(TextEncoder())
    generator = torch.Generator().manual_seed(args.seed)
    starts = torch.randint(0, half - BATCH, (STEPS,), generator=generator)
    longest_of = [int(lengths[mine[start : start + BATCH]].max()) for start in starts]
    batches = (
        (torch.randint(2000, (BATCH, length)), torch.randint(2, (BATCH,))) for length in longest_of
    )
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), batches)


if __name__ == "__main__":
    main()
