# /// scenario
# suspect = "data_pipeline"
# cause = "slow_tokenisation"
# stage = "tokenise"
# fix = "tokenise once and store the ids"
# severities = [0.7, 1.0, 1.5]  # words per phrase
# ///
"""Trains a translation model on phrases and their translations, as byte pairs."""

import itertools
import random
import string
from collections import Counter
from functools import partial

import torch
from common import Throughput, arguments
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PHRASES = 480
MAX_LENGTH = 32
BATCH = 16
STEPS = 340


class BytePairs:
    """Joins the pair of neighbours that was learnt first, until none is left."""

    def __init__(self, words, merges=220):
        counts = Counter(words)
        split = {word: list(word) for word in counts}
        self.ranks = {}
        while len(self.ranks) < merges:
            pairs = Counter()
            for word, count in counts.items():
                for pair in zip(split[word], split[word][1:], strict=False):
                    pairs[pair] += count
            best = pairs.most_common(1)[0][0]
            self.ranks[best] = len(self.ranks)
            split = {word: self.joined(symbols, best) for word, symbols in split.items()}
        symbols = [*string.ascii_lowercase, *("".join(pair) for pair in self.ranks)]
        self.ids = {symbol: number for number, symbol in enumerate(symbols, start=1)}

    @staticmethod
    def joined(symbols, pair):
        result = []
        for symbol in symbols:
            if result and (result[-1], symbol) == pair:
                result[-1] += symbol
            else:
                result.append(symbol)
        return result

    def encode(self, phrase):
        ids = []
        for word in phrase.split():
            symbols = list(word)
            while len(symbols) > 1:
                pairs = itertools.pairwise(symbols)
                best = min(pairs, key=lambda pair: self.ranks.get(pair, 1 << 30))
                if best not in self.ranks:
                    break
                symbols = self.joined(symbols, best)
            ids += [self.ids[symbol] for symbol in symbols]
        return torch.tensor(ids[:MAX_LENGTH])


def collate(pairs, encode):
    sources, targets = zip(*pairs, strict=True)
    return tuple(
        pad_sequence([encode(phrase) for phrase in side], batch_first=True)
        for side in (sources, targets)
    )


class Translator(nn.Module):
    def __init__(self, symbols, width=96):
        super().__init__()
        self.embed = nn.Embedding(symbols, width, padding_idx=0)
        self.encoder = nn.Conv1d(width, width, 5, padding=2)
        self.decoder = nn.Conv1d(width, width, 4, padding=3)
        self.head = nn.Linear(width, symbols)

    def forward(self, source, target):
        meaning = torch.relu(self.encoder(self.embed(source).transpose(1, 2))).amax(dim=2)
        decoded = self.decoder(self.embed(target[:, :-1]).transpose(1, 2))[:, :, :-3]
        return self.head(torch.relu(decoded + meaning.unsqueeze(2)).transpose(1, 2))


def main():
    args = arguments(__doc__)
    syllables = ["".join(random.choices(string.ascii_lowercase, k=3)) for _ in range(60)]
    words = ["".join(random.choices(syllables, k=random.randint(2, 5))) for _ in range(900)]
    length = round(30 * args.severity)
    corpus = [
        tuple(" ".join(random.choices(words, k=length)) for _ in range(2)) for _ in range(PHRASES)
    ]
    tokenizer = BytePairs(words)
    encode = tokenizer.encode
    if args.fixed:
        encode = {phrase: encode(phrase) for pair in corpus for phrase in pair}.__getitem__
    loader = DataLoader(
        [corpus[number % PHRASES] for number in range(STEPS * BATCH)],
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        collate_fn=partial(collate, encode=encode),
    )
    model = Translator(len(tokenizer.ids) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    for source, target in loader:
        optimizer.zero_grad()
        scores = model(source, target)
        loss = nn.functional.cross_entropy(
            scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0
        )
        loss.backward()
        optimizer.step()
        meter.update(len(source))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
