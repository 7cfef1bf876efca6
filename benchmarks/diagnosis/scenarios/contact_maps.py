# /// scenario
# suspect = "model"
# cause = "optimizer"
# fix = "a cheaper optimizer: AdamW for all parameters"
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a residue contact predictor, its matrices with Muon and the rest with AdamW."""

import torch
from common import Throughput, arguments, sampled
from torch import nn

RESIDUES, FEATURES = 48, 64
BATCH = 4


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, residues):
        return residues + self.down(torch.nn.functional.silu(self.up(self.norm(residues))))


class ContactPredictor(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.blocks = nn.Sequential(*[Mixer(width) for _ in range(depth)])
        self.left = nn.Linear(width, 32)
        self.right = nn.Linear(width, 32)

    def forward(self, features):
        residues = self.blocks(self.embed(features))
        return self.left(residues) @ self.right(residues).transpose(1, 2) / 32**0.5


def optimizers(model, adam_only):
    if adam_only:
        return [torch.optim.AdamW(model.parameters(), lr=1e-3)]
    hidden = [p for name, p in model.named_parameters() if "blocks" in name and p.ndim == 2]
    hidden_ids = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in hidden_ids]
    return [torch.optim.Muon(hidden, lr=2e-3), torch.optim.AdamW(rest, lr=1e-3)]


def main():
    args = arguments(__doc__, threads=None)
    model = ContactPredictor(32 * round(8 * args.severity))
    steppers = optimizers(model, args.fixed)
    criterion = nn.BCEWithLogitsLoss()
    features = torch.randn(256, RESIDUES, FEATURES)
    contacts = (torch.rand(256, RESIDUES, RESIDUES) < 0.1).float()
    meter = Throughput()
    for inputs, targets in sampled([features, contacts], BATCH, 120):
        loss = criterion(model(inputs), targets)
        for optimizer in steppers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in steppers:
            optimizer.step()
        meter.update(BATCH)
    meter.report(loss)


if __name__ == "__main__":
    main()
