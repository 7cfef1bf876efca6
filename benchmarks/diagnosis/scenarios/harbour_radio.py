# /// scenario
# suspect = "framework_overhead"
# cause = ["python_overhead", "slow_tokenisation"]
# fix = ["measure the error rate rarely", "tokenise once and store the ids"]
# severities = [0.8, 1.0, 1.25]  # 1 is messages of 20 to 28 words
# held_out = true
# ///
"""Translates the radio messages of a harbour and watches the error rate of the tokens."""

import collections
import math
import random

import torch
from common import Throughput, arguments
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PIECES = 500
MAX_LENGTH = 6
BATCH = 32
STEPS = 180
MESSAGES = 1280
PAD, START, END = 0, 1, 2


def make_messages(count, scale):
    """Makes pairs of messages: the second language spells each word differently."""
    syllables = [c + v + e for c in "bdfgklmnprst" for v in "aeiou" for e in ("", "n", "r")]
    stems = ["".join(random.choices(syllables, k=2)) for _ in range(70)]
    words = {"".join(random.choices(stems, k=random.randint(2, 3))) for _ in range(20_000)}
    words = sorted(words)
    pairs = []
    for _ in range(count):
        source = random.choices(words, k=int(scale * random.randint(20, 28)))
        pairs.append((" ".join(source), " ".join(word[::-1] for word in source)))
    return pairs


class Tokenizer:
    """Splits words into the most probable pieces, which are frequent in some texts."""

    def __init__(self, texts):
        counts = collections.Counter()
        for text in texts:
            for word in text.split():
                for length in range(1, MAX_LENGTH + 1):
                    counts.update(word[i : i + length] for i in range(len(word) - length + 1))
        pieces = [letter for letter in counts if len(letter) == 1]
        longer = [piece for piece in counts if len(piece) > 1]
        longer.sort(key=lambda piece: counts[piece] * len(piece), reverse=True)
        pieces = (pieces + longer)[: PIECES - END - 1]
        total = sum(counts[piece] for piece in pieces)
        self.numbers = {piece: number for number, piece in enumerate(pieces, END + 1)}
        self.scores = {piece: math.log(counts[piece] / total) for piece in pieces}

    def split(self, word):
        best, starts = [0.0], [0]
        for end in range(1, len(word) + 1):
            score, start = -math.inf, 0
            for i in range(max(0, end - MAX_LENGTH), end):
                candidate = best[i] + self.scores.get(word[i:end], -math.inf)
                if candidate > score:
                    score, start = candidate, i
            best.append(score)
            starts.append(start)
        pieces, end = [], len(word)
        while end:
            pieces.append(word[starts[end] : end])
            end = starts[end]
        return pieces[::-1]

    def encode(self, text):
        ids = [self.numbers[piece] for word in text.split() for piece in self.split(word)]
        return torch.tensor([START, *ids, END])


class Encode:
    """Collate function."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, pairs):
        return pad([tuple(self.tokenizer.encode(text) for text in pair) for pair in pairs])


def pad(pairs):
    sources, targets = zip(*pairs, strict=True)
    return pad_sequence(sources, batch_first=True), pad_sequence(targets, batch_first=True)


class Translator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.pieces = nn.Embedding(PIECES, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, PIECES)

    def forward(self, source, target):
        _, state = self.encoder(self.pieces(source))
        hidden, _ = self.decoder(self.pieces(target), state)
        return self.out(hidden)


def edit_distance(predicted, expected):
    previous = list(range(len(expected) + 1))
    for i, token in enumerate(predicted, 1):
        row = [i]
        for j, target in enumerate(expected, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (token != target)))
        previous = row
    return previous[-1]


def error_rate(logits, target):
    errors = tokens = 0
    for predicted, expected in zip(logits.argmax(dim=2).tolist(), target.tolist(), strict=True):
        length = expected.index(END)
        errors += edit_distance(predicted[:length], expected[:length])
        tokens += length
    return errors / tokens


def main():
    args = arguments(__doc__)
    messages = make_messages(MESSAGES, args.severity)
    tokenizer = Tokenizer(text for pair in messages for text in pair)
    if args.fixed:
        stored = [tuple(tokenizer.encode(text) for text in pair) for pair in messages]
        loader = DataLoader(stored, BATCH, shuffle=True, collate_fn=pad)
    else:
        loader = DataLoader(messages, BATCH, shuffle=True, collate_fn=Encode(tokenizer))
    check_every = 60 if args.fixed else 1
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    meter = Throughput()
    step, average = 0, 1.0
    while step < STEPS:
        for source, target in loader:
            logits = model(source, target[:, :-1])
            loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % check_every == 0:
                average += 0.1 * (error_rate(logits.detach(), target[:, 1:]) - average)
            meter.update(len(source))
    print(f"average error rate {average:.3f}")
    meter.report(loss)


if __name__ == "__main__":
    main()
