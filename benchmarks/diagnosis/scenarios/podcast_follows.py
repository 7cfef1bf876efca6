# /// scenario
# suspect = "data_pipeline"
# cause = "inline_data_preparation"
# fix = "prepare the batches in the workers of a DataLoader"
# severities = [0.7, 1.0, 1.5]  # listening events of a user
# held_out = true
# ///
"""A two-tower recommender of podcasts, trained on which shows listeners follow."""

import heapq
import math
import random
from collections import defaultdict

import torch
import torch.nn.functional as F
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader

SHOWS = 3000
PROFILE = 24
NEGATIVES = 8


def listening_log(users, events, rng):
    """For every user the events (show, days ago, minutes)."""
    log = []
    for _ in range(users):
        favourites = rng.choices(range(1, SHOWS), k=60)
        log.append(
            [(rng.choice(favourites), rng.random() * 365, rng.random() * 60) for _ in range(events)]
        )
    return log


def listener_profile(events):
    """The shows that a user listened to most, recent listening counting more."""
    weights = defaultdict(float)
    for show, days, minutes in events:
        weights[show] += minutes * math.exp(-days / 90)
    return heapq.nlargest(PROFILE, weights.items(), key=lambda item: item[1])


def prepare(users, log, follows):
    shows, weights, candidates = [], [], []
    for user in users:
        profile = listener_profile(log[user])
        padding = PROFILE - len(profile)
        total = sum(weight for _, weight in profile)
        shows.append([show for show, _ in profile] + [0] * padding)
        weights.append([weight / total for _, weight in profile] + [0.0] * padding)
        row = [random.choice(follows[user])]
        while len(row) <= NEGATIVES:
            show = random.randrange(1, SHOWS)
            if show not in follows[user]:
                row.append(show)
        candidates.append(row)
    return torch.tensor(shows), torch.tensor(weights), torch.tensor(candidates)


class TwoTowers(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.shows = nn.EmbeddingBag(SHOWS, width, mode="sum")
        self.user_tower = perceptron(width, 512, width, depth=3)
        self.items = nn.Embedding(SHOWS, width)
        self.item_tower = perceptron(width, 128, width, depth=1)

    def forward(self, shows, weights, candidates):
        user = self.user_tower(self.shows(shows, per_sample_weights=weights))
        item = self.item_tower(self.items(candidates))
        return (item * user.unsqueeze(1)).sum(dim=2)


def batches_of_users(log, follows, steps, batch_size):
    users = list(range(len(log)))
    for _ in range(steps):
        yield prepare(random.sample(users, batch_size), log, follows)


def loaded_batches(log, follows, steps, batch_size):
    drawn = [random.sample(range(len(log)), batch_size) for _ in range(steps)]
    return DataLoader(
        range(len(log)),
        batch_sampler=drawn,
        collate_fn=lambda users: prepare(users, log, follows),
        num_workers=2,
    )


def main():
    args = arguments(__doc__)
    rng = random.Random(args.seed)
    log = listening_log(1200, int(380 * args.severity), rng)
    follows = [rng.sample(range(1, SHOWS), 12) for _ in log]
    steps, batch_size = 210, 256
    model = TwoTowers()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=50)
    target = torch.zeros(batch_size, dtype=torch.long)
    throughput = Throughput()
    batches = (loaded_batches if args.fixed else batches_of_users)(log, follows, steps, batch_size)
    for step, (shows, weights, candidates) in enumerate(batches):
        scores = model(shows, weights, candidates)
        loss = F.cross_entropy(scores, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")
        throughput.update(batch_size)
    throughput.report()


if __name__ == "__main__":
    main()
