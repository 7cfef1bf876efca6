# /// scenario
# suspect = "data_pipeline"
# cause = "inline_data_preparation"
# fix = "prepare batches outside of the loop, or vectorised: draw all negatives at once"
# severities = [0.6, 1.0, 1.6]  # songs per pair that were not listened to
# quick = true
# ///
"""Trains song and listener embeddings with the Bayesian personalised ranking loss."""

import random

import torch
from common import arguments, sgd, train
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


def compute_loss(model, *pairs):
    return -nn.functional.logsigmoid(model(*pairs)).mean()


def main():
    args = arguments(__doc__, threads=None)
    negatives = round(30 * args.severity)
    history = [set(random.sample(range(SONGS), 40)) for _ in range(LISTENERS)]
    table = torch.tensor([sorted(played) for played in history])
    if args.fixed:
        batches = (sample_fast(table, negatives) for _ in range(STEPS))
    else:
        batches = (sample(history, negatives) for _ in range(STEPS))
    model = Taste()
    train(model, sgd(model, 0.05, 0), batches, compute_loss)


if __name__ == "__main__":
    main()
