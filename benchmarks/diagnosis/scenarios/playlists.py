# /// scenario
# suspect = "data_pipeline"
# cause = "inline_data_preparation"
# fix = "prepare batches outside of the loop, or vectorised: draw all negatives at once"
# severities = [0.6, 1.0, 1.6]  # songs per pair that were not listened to
# ///
"""Trains song and listener embeddings with the Bayesian personalised ranking loss."""

import argparse
import random

import torch
from common import Throughput
from torch import nn

LISTENERS, SONGS = 3000, 12_000
PAIRS = 512
STEPS = 300


class Taste(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.listener = nn.Embedding(LISTENERS, width)
        self.song = nn.Embedding(SONGS, width)

    def forward(self, listeners, liked, unplayed):
        taste = self.listener(listeners)
        positive = (taste * self.song(liked)).sum(dim=1, keepdim=True)
        negative = torch.bmm(self.song(unplayed), taste.unsqueeze(2)).squeeze(2)
        return positive - negative


def sample(history, negatives):
    """Pairs of a listener and a song of theirs, with songs that they never played."""
    listeners, liked, negative_songs = [], [], []
    for _ in range(PAIRS):
        listener = random.randrange(LISTENERS)
        played = history[listener]
        unplayed = []
        while len(unplayed) < negatives:
            song = random.randrange(SONGS)
            if song not in played:
                unplayed.append(song)
        listeners.append(listener)
        liked.append(random.choice(tuple(played)))
        negative_songs.append(unplayed)
    return torch.tensor(listeners), torch.tensor(liked), torch.tensor(negative_songs)


def sample_fast(table, negatives):
    """One unplayed song in 300 is a played one, which does no harm."""
    listeners = torch.randint(LISTENERS, (PAIRS,))
    liked = table[listeners, torch.randint(table.shape[1], (PAIRS,))]
    return listeners, liked, torch.randint(SONGS, (PAIRS, negatives))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    negatives = round(30 * args.severity)
    history = [set(random.sample(range(SONGS), 40)) for _ in range(LISTENERS)]
    table = torch.tensor([sorted(played) for played in history])
    model = Taste()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter = Throughput()
    for step in range(STEPS):
        if args.fixed:
            listeners, liked, unplayed = sample_fast(table, negatives)
        else:
            listeners, liked, unplayed = sample(history, negatives)
        loss = -nn.functional.logsigmoid(model(listeners, liked, unplayed)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(PAIRS)
        if step % 100 == 0:
            print(f"{step}: {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
