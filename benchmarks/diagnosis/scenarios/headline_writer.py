# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# fix = "a faster algorithm for the reward (vectorise, bit-parallel LCS)"
# severities = [0.7, 1.0, 1.5]  # how many reference headlines each sentence has
# held_out = true
# ///
"""Learns to shorten sentences into headlines by policy gradients, ROUGE-L being the reward."""

import random

import torch
from common import Throughput, arguments
from torch import nn

WORDS = 3000
LENGTH = 44
BATCH = 32
STEPS = 230


class KeepOrDrop(nn.Module):
    """A logit for each word: whether the headline keeps it."""

    def __init__(self, width=80, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.keep = nn.Linear(width, 1)

    def forward(self, tokens):
        return self.keep(self.encoder(self.words(tokens) + self.places)).squeeze(-1)


def common_subsequence(words, reference):
    """Length of the longest common subsequence of two lists."""
    above = [0] * (len(reference) + 1)
    for word in words:
        row = [0]
        for column, reference_word in enumerate(reference):
            if word == reference_word:
                row.append(above[column] + 1)
            else:
                row.append(max(above[column + 1], row[column]))
        above = row
    return above[-1]


class Reference:
    """A headline as bits: where each of its words stands."""

    def __init__(self, words):
        self.length = len(words)
        self.everywhere = (1 << len(words)) - 1
        self.places = {}
        for position, word in enumerate(words):
            self.places[word] = self.places.get(word, 0) | 1 << position

    def common_subsequence(self, words):
        row = self.everywhere
        for word in words:
            positions = self.places.get(word)
            if positions is not None:
                hits = row & positions
                row = (row + hits) | (row - hits)
        return self.length - (row & self.everywhere).bit_count()


def f_measure(common, length, reference_length):
    if not common:
        return 0.0
    precision, recall = common / length, common / reference_length
    return 2 * precision * recall / (precision + recall)


def rewards(sentences, masks, references, lookup=None):
    """Mean ROUGE-L of each shortened sentence against its references."""
    scores = []
    for sentence, mask, candidates in zip(sentences.tolist(), masks.tolist(), references):
        headline = [word for word, keep in zip(sentence, mask) if keep]
        total = 0.0
        for reference in candidates:
            if lookup is not None:
                common = lookup[id(reference)].common_subsequence(headline)
            else:
                common = common_subsequence(headline, reference)
            total += f_measure(common, len(headline), len(reference))
        scores.append(total / len(candidates))
    return torch.tensor(scores)


def corpus(count, headlines):
    sentences, references = [], []
    for _ in range(count):
        sentence = [int(WORDS * random.random() ** 2) for _ in range(LENGTH)]
        shorter = []
        for _ in range(headlines):
            shorter.append([w for w in sentence if random.random() < (0.6 if w % 3 == 0 else 0.25)])
        sentences.append(sentence)
        references.append(shorter)
    return torch.tensor(sentences), references


def main():
    args = arguments(__doc__)
    sentences, references = corpus(1500, max(1, round(4 * args.severity)))
    lookup = None
    if args.fixed:
        lookup = {id(one): Reference(one) for group in references for one in group}
    policy = KeepOrDrop()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-4)
    meter = Throughput()
    average = 0.0
    for step in range(STEPS):
        rows = torch.randint(len(sentences), (BATCH,))
        batch = sentences[rows]
        targets = [references[row] for row in rows.tolist()]
        logits = policy(batch)
        actions = torch.distributions.Bernoulli(logits=logits)
        sampled = actions.sample()
        greedy = (logits > 0).float()
        reward = rewards(batch, sampled.bool(), targets, lookup)
        baseline = rewards(batch, greedy.bool(), targets, lookup)
        advantage = (reward - baseline).unsqueeze(1)
        loss = -(advantage * actions.log_prob(sampled)).sum(1).mean()
        loss = loss - 0.01 * actions.entropy().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        average += 0.05 * (reward.mean().item() - average)
        if step % 50 == 0:
            print(f"step {step}: reward {average:.3f}")
        meter.update(BATCH)
    meter.report()


if __name__ == "__main__":
    main()
