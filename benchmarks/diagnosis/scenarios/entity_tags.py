# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# fix = "replace the loop over elements by tensor operations: all tags at once"
# severities = [0.7, 1.0, 1.5]  # words per sentence
# ///
"""Trains a tagger of names in sentences, with a conditional random field on top."""

import torch
from common import Throughput, arguments
from torch import nn

WORDS = 4000
TAGS = 12
BATCH = 24
STEPS = 280


class Tagger(nn.Module):
    def __init__(self, at_once, width=96):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.encoder = nn.Sequential(
            nn.Conv1d(width, 2 * width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 5, padding=2),
            nn.ReLU(),
        )
        self.emit = nn.Linear(2 * width, TAGS)
        self.transitions = nn.Parameter(torch.randn(TAGS, TAGS) / 10)
        self.normaliser = self.all_tags if at_once else self.tag_by_tag

    def tag_by_tag(self, emitted):
        """Log of the sum over all taggings."""
        alpha = emitted[:, 0]
        for word in range(1, emitted.shape[1]):
            following = []
            for tag in range(TAGS):
                scores = alpha + self.transitions[:, tag] + emitted[:, word, tag].unsqueeze(1)
                following.append(torch.logsumexp(scores, dim=1))
            alpha = torch.stack(following, dim=1)
        return torch.logsumexp(alpha, dim=1)

    def all_tags(self, emitted):
        alpha = emitted[:, 0]
        for scores in emitted[:, 1:].unbind(dim=1):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1) + scores
        return torch.logsumexp(alpha, dim=1)

    def score(self, emitted, tags):
        tag_scores = emitted.gather(2, tags.unsqueeze(2)).sum(dim=(1, 2))
        return tag_scores + self.transitions[tags[:, :-1], tags[:, 1:]].sum(dim=1)

    def forward(self, words, tags):
        hidden = self.encoder(self.embed(words).transpose(1, 2))
        emitted = self.emit(hidden.transpose(1, 2))
        return (self.normaliser(emitted) - self.score(emitted, tags)).mean()


def sentences(length):
    words = torch.randint(0, WORDS, (2048, length))
    tags = words % TAGS
    for _ in range(STEPS):
        rows = torch.randint(0, len(words), (BATCH,))
        yield words[rows], tags[rows]


def main():
    args = arguments(__doc__)
    model = Tagger(args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    meter = Throughput()
    for words, tags in sentences(round(22 * args.severity)):
        optimizer.zero_grad()
        loss = model(words, tags)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        meter.update(len(words))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
