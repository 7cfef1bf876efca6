# /// scenario
# suspect = "communication"
# cause = "gradient_exchange"
# fix = "exchange sparse gradients of the embedding"
# severities = [0.7, 1.0, 1.5]  # rows of the hashed embedding
# ranks = 2
# held_out = true
# ///
"""Guesses the language of short messages from hashed character n-grams, on two ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import Throughput, arguments, perceptron
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LANGUAGES = 30
PIECES = 40
BATCH = 64
STEPS = 220


class Guesser(nn.Module):
    def __init__(self, buckets, width=48, sparse=False):
        super().__init__()
        self.grams = nn.EmbeddingBag(buckets, width, mode="mean", sparse=sparse)
        self.head = perceptron(width, 384, LANGUAGES, depth=3)

    def forward(self, grams):
        return self.head(10 * self.grams(grams))


def messages(count, buckets, generator):
    labels = torch.randint(LANGUAGES, (count,), generator=generator)
    typical = torch.randint(40, (count, PIECES), generator=generator) * LANGUAGES
    noise = torch.randint(buckets, (count, PIECES), generator=generator)
    pick = torch.rand(count, PIECES, generator=generator) < 0.3
    return torch.where(pick, (typical + labels.unsqueeze(1)) % buckets, noise), labels


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buckets = int(80_000 * args.severity)
    generator = torch.Generator().manual_seed(args.seed * 2 + rank)
    grams, labels = messages(8192, buckets, generator)

    model = DistributedDataParallel(Guesser(buckets, sparse=args.fixed))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)
    meter = Throughput()
    for step in range(STEPS):
        rows = torch.randint(len(grams), (BATCH,), generator=generator)
        logits = model(grams[rows])
        loss = F.cross_entropy(logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        meter.update(BATCH)
    if rank == 0:
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
