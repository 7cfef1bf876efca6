"""Trains at a steady pace; once a file exists, the creation of every batch takes half a second.

--stall FILE    the input stalls once this file exists
--until FILE    continue until this file exists
--out FILE      receives the time (epoch ns) at which the second stalled step has ended: from then
                on the stall is visible in the steps
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STALL_S = 0.5
COMPUTE_S = 0.01


class Rows(IterableDataset):
    def __init__(self, stall, until):
        self.stall = stall
        self.until = until
        self.stalled = 0

    def __iter__(self):
        while not self.until.exists():
            if self.stall.exists():
                time.sleep(STALL_S)
                self.stalled += 1
            yield torch.ones(16)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stall", type=Path, required=True)
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = Rows(arguments.stall, arguments.until)
    for batch in DataLoader(rows, batch_size=1):
        optimizer.zero_grad()
        model(batch).sum().backward()
        time.sleep(COMPUTE_S)
        optimizer.step()
        if rows.stalled == 2 and not arguments.out.exists():
            arguments.out.write_text(str(time.time_ns()))


if __name__ == "__main__":
    main()
