"""A job whose dataset sleeps, so that the effect of workers is known.

It writes a file at its start, and a checkpoint after each epoch.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLE_S = 0.004
BATCH = 5
STEPS = 60
MEASURED = range(12, 12 + STEPS)
"""As many steps as an epoch, so that the start of the workers counts in proportion."""


class Sleeping(Dataset):
    """Dataset of random rows that takes a known time per sample."""

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SAMPLE_S)
        return torch.randn(16, generator=torch.Generator().manual_seed(index))


parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--times", help="file for the mean time of the measured steps")
arguments = parser.parse_args()
Path("started").write_text(str(time.time_ns()))

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Sleeping(), batch_size=BATCH, shuffle=True, num_workers=arguments.workers)
times = []
for _ in range(2):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        times.append(time.monotonic())
    torch.save(model.state_dict(), "checkpoint.pt")
if arguments.times:
    mean = (times[MEASURED.stop] - times[MEASURED.start]) / len(MEASURED)
    Path(arguments.times).write_text(json.dumps(mean))
