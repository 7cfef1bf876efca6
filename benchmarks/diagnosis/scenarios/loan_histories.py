# /// scenario
# suspect = "framework_overhead"
# cause = "garbage_collection"
# fix = "do not call gc.collect in the training loop"
# severities = [0.7, 1.0, 1.5]  # how many records are alive
# held_out = true
# ///
"""Predicts which loans will default from the history of their payments."""

import gc
from dataclasses import dataclass

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn

MONTHS = 24


@dataclass(slots=True)
class Payment:
    month: int
    due: float
    paid: float
    tags: list


@dataclass(slots=True)
class Loan:
    number: int
    payments: list
    defaulted: bool


def read_ledger(loans, rng):
    ledger = []
    for number in range(loans):
        amount = float(rng.uniform(50, 900))
        risk = rng.random()
        ratios = np.clip(1 + 0.4 * rng.standard_normal(MONTHS) - 0.5 * risk, 0, 1).tolist()
        payments = [
            Payment(month, amount, amount * ratio, ["late"] if ratio < 0.7 else ["regular"])
            for month, ratio in enumerate(ratios)
        ]
        ledger.append(Loan(number, payments, bool(rng.random() < risk)))
    return ledger


def features(ledger):
    paid = torch.tensor([[p.paid / p.due for p in loan.payments] for loan in ledger])
    due = torch.tensor([[p.due / 900 for p in loan.payments] for loan in ledger])
    late = torch.tensor([[float(p.tags[0] == "late") for p in loan.payments] for loan in ledger])
    return torch.stack((paid, due, late), dim=-1)


class DefaultNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.lift = nn.Linear(3, width)
        self.recur = nn.LSTM(width, width, num_layers=1, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(width, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)
        )

    def forward(self, x):
        hidden, _ = self.recur(torch.relu(self.lift(x)))
        return self.head(hidden[:, -1]).squeeze(-1)


def main():
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    ledger = read_ledger(int(5000 * args.severity), rng)
    inputs = features(ledger)
    labels = torch.tensor([float(loan.defaulted) for loan in ledger])
    weight = (1 - labels.mean()) / labels.mean()

    model = DefaultNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss(pos_weight=weight)
    meter = Throughput()
    right = count = 0
    for step in range(220):
        rows = torch.randint(len(inputs), (96,))
        x, y = inputs[rows], labels[rows]
        logits = model(x)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += ((logits > 0) == (y > 0.5)).sum().item()
        count += len(y)
        if step % 55 == 54:
            worst = ledger[int(rows[(logits.detach() * (1 - y)).argmax()])]
            print(f"step {step}: accuracy {right / count:.3f}, look at loan {worst.number}")
        del x, y, logits, loss
        if step % 4 == 3 and not args.fixed:
            gc.collect()  # keeps the memory flat
        meter.update(96)
    meter.report()


if __name__ == "__main__":
    main()
