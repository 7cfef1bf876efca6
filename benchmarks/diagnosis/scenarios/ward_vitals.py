# /// scenario
# suspect = "data_pipeline"
# cause = "slow_collate"
# fix = "fill the grid of a batch with vectorised indexing in collate_fn"
# severities = [0.7, 1.0, 1.5]  # measurements of a stay
# held_out = true
# ///
"""Mortality prediction from the irregular vital signs of hospital wards, batches by length of stay."""

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchmetrics.classification import BinaryAUROC

VARIABLES = 16
HOURS = 36


class Stays(Dataset):
    """Each stay: arrays of hours, variables and values, sorted by time, and the outcome."""

    def __init__(self, number, measurements, seed):
        rng = np.random.default_rng(seed)
        self.stays = []
        for _ in range(number):
            count = int(measurements * rng.uniform(0.8, 1.2))
            hours = np.sort(rng.integers(0, HOURS, size=count))
            variables = rng.integers(0, VARIABLES, size=count)
            outcome = int(rng.random() < 0.4)
            values = rng.normal(0.15 * outcome, 1.0, size=count).astype(np.float32)
            self.stays.append((hours, variables, values, outcome))

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, index):
        return self.stays[index]


class BatchesByLength(Sampler):
    """Batches of stays with a similar number of measurements."""

    def __init__(self, lengths, batch_size, batches, seed):
        self.order = np.argsort(lengths)
        self.batch_size, self.batches = batch_size, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        last = len(self.order) - self.batch_size
        for _ in range(self.batches):
            start = int(self.rng.integers(0, last + 1))
            yield self.order[start : start + self.batch_size].tolist()


def collate_stays(stays):
    """Puts stays on a grid of hours by variables, with a mask of what was measured."""
    values = torch.zeros(len(stays), HOURS, VARIABLES)
    observed = torch.zeros(len(stays), HOURS, VARIABLES)
    outcomes = torch.zeros(len(stays))
    for row, (hours, variables, measured, outcome) in enumerate(stays):
        for hour, variable, value in zip(hours, variables, measured):
            values[row, hour, variable] = float(value)
            observed[row, hour, variable] = 1.0
        outcomes[row] = outcome
    return torch.cat([values, observed], dim=2), outcomes


def collate_on_grid(stays):
    """The same batch as collate_stays makes."""
    values = np.zeros((len(stays), HOURS, VARIABLES), dtype=np.float32)
    observed = np.zeros_like(values)
    rows = np.repeat(np.arange(len(stays)), [len(stay[0]) for stay in stays])
    cells = rows, np.concatenate([s[0] for s in stays]), np.concatenate([s[1] for s in stays])
    values[cells] = np.concatenate([stay[2] for stay in stays])
    observed[cells] = 1.0
    grid = torch.from_numpy(np.concatenate([values, observed], axis=2))
    return grid, torch.tensor([float(stay[3]) for stay in stays])


class WardModel(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.project = nn.Linear(2 * VARIABLES, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, grid):
        hidden, _ = self.recurrent(torch.relu(self.project(grid)))
        return self.head(hidden.mean(dim=1)).squeeze(1)


args = arguments(__doc__)
stays = Stays(600, int(250 * args.severity), args.seed)
batches = BatchesByLength([len(stay[0]) for stay in stays.stays], 32, 110, args.seed)
loader = DataLoader(
    stays,
    batch_sampler=batches,
    collate_fn=collate_on_grid if args.fixed else collate_stays,
    num_workers=2,
    persistent_workers=True,
)
model = WardModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
criterion = nn.BCEWithLogitsLoss()
throughput = Throughput()

for epoch in range(2):
    auroc = BinaryAUROC(thresholds=50)
    losses = []
    for step, (grid, outcomes) in enumerate(loader):
        logits = model(grid)
        loss = criterion(logits, outcomes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            losses.append(loss.item())
            auroc.update(logits.detach().sigmoid(), outcomes.long())
        throughput.update(len(outcomes))
    scheduler.step()
    print(f"epoch {epoch} loss {np.mean(losses):.4f} auroc {auroc.compute():.3f}")
throughput.report()
