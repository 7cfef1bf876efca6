# /// scenario
# suspect = "framework_overhead"
# cause = "straggler"
# stage = "rank 0"
# accept = ["framework_overhead/logging"]
# fix = "write the journal every N steps, so that the ranks have the same to do"
# severities = [0.7, 1.0, 1.5]  # neighbours that are written down for each
# ranks = 2
# ///
"""Trains photos and titles of products towards each other, on two ranks."""

import gzip
import json
import tempfile

import torch
from common import RANK, Throughput, arguments, convolutions, criterion, share
from torch import nn

WORDS = 2000
BATCH = 32


class TwoTowers(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.photo = convolutions(classes=width)
        self.title = nn.EmbeddingBag(WORDS, width)
        self.sharpness = nn.Parameter(torch.tensor(2.0))

    def forward(self, photos, titles):
        photo = nn.functional.normalize(self.photo(photos), dim=1)
        title = nn.functional.normalize(self.title(titles), dim=1)
        return self.sharpness.exp() * photo @ title.T


class Journal:
    """Closest neighbours of each photo and of each title, a line for each."""

    def __init__(self, file, titles, neighbours):
        self.file = file
        self.names = [" ".join(map(str, words)) for words in titles.tolist()]
        self.neighbours = neighbours

    def write(self, step, kind, rows, scores):
        products = rows.tolist()
        for product, line in zip(products, scores.detach().tolist(), strict=True):
            ranked = sorted(zip(line, products, strict=True), reverse=True)
            closest = [
                {"rank": rank, "product": neighbour, "score": score, "title": self.names[neighbour]}
                for rank, (score, neighbour) in enumerate(ranked[: self.neighbours])
            ]
            entry = {"step": step, kind: product, "closest": closest}
            self.file.write(json.dumps(entry) + "\n")


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed + RANK)
    photos = torch.rand(512, 3, 32, 32)
    titles = torch.randint(0, WORDS, (512, 8))
    model = share(TwoTowers())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    matches = torch.arange(BATCH)
    with tempfile.TemporaryFile() as disk, gzip.open(disk, "wt") as file:
        journal = Journal(file, titles, round(20 * args.severity))
        meter = Throughput()
        for step in range(280):
            rows = torch.randint(0, 512, (BATCH,))
            optimizer.zero_grad()
            scores = model(photos[rows], titles[rows])
            loss = (criterion(scores, matches) + criterion(scores.T, matches)) / 2
            loss.backward()
            optimizer.step()
            if RANK == 0 and (not args.fixed or step % 50 == 0):
                journal.write(step, "photo", rows, scores)
                journal.write(step, "title", rows, scores.T)
            meter.update(BATCH)
    meter.report(loss)


if __name__ == "__main__":
    main()
