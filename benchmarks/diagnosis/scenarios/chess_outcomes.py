# /// scenario
# suspect = "model"
# cause = ["padding", "garbage_collection"]
# fix = ["pad each batch to its longest game", "keep the collector out of the step"]
# severities = [0.8, 1.0, 1.25]  # 1 is games of up to 160 moves
# held_out = true
# ///
"""Predicts the outcome of chess games from their openings and middle games."""

import gc
import random
from dataclasses import dataclass

import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

SQUARES = 64
MAX_LENGTH = 160
GAMES = 4000
BATCH = 32
STEPS = 125


@dataclass
class Move:
    start: int
    end: int
    seconds: float


@dataclass
class Game:
    moves: list[Move]
    outcome: int


def play(count, longest):
    """Makes games; most of them are short."""
    games = []
    for _ in range(count):
        length = min(longest, 20 + int(random.expovariate(1 / 12)))
        moves = [
            Move(random.randrange(SQUARES), random.randrange(SQUARES), random.expovariate(0.1))
            for _ in range(length)
        ]
        games.append(Game(moves, sum(move.end for move in moves) % 3))
    return games


class Games(Dataset):
    def __init__(self, games):
        self.games = games

    def __len__(self):
        return len(self.games)

    def __getitem__(self, index):
        game = self.games[index]
        return [1 + move.start * SQUARES + move.end for move in game.moves], game.outcome


class Collate:
    def __init__(self, length=None):
        self.length = length

    def __call__(self, games):
        length = self.length or max(len(moves) for moves, _ in games)
        moves = torch.tensor([moves + [0] * (length - len(moves)) for moves, _ in games])
        return moves, torch.tensor([outcome for _, outcome in games])


class OutcomeNet(nn.Module):
    def __init__(self, longest, width=64, layers=2):
        super().__init__()
        self.moves = nn.Embedding(SQUARES * SQUARES + 1, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, moves):
        padding = moves == 0
        hidden = self.moves(moves) + self.places[: moves.shape[1]]
        hidden = self.layers(hidden, src_key_padding_mask=padding)
        hidden = hidden.masked_fill(padding[:, :, None], 0).sum(dim=1)
        return self.head(hidden / (~padding).sum(dim=1, keepdim=True))


def main():
    args = arguments(__doc__)
    longest = int(MAX_LENGTH * args.severity)
    games = Games(play(GAMES, longest))
    collate = Collate() if args.fixed else Collate(longest)
    loader = DataLoader(games, BATCH, shuffle=True, collate_fn=collate)
    free_memory = not args.fixed
    model = OutcomeNet(longest)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for step, (moves, outcomes) in enumerate(loader):
        loss = criterion(model(moves), outcomes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if free_memory and step % 4 == 0:
            gc.collect()
        meter.update(len(moves))
    meter.report(loss)


if __name__ == "__main__":
    main()
