"""Plants a late rank: with an argument, rank 1 takes 12 ms longer for each of its batches.

Run it under ``python -m torch.distributed.run --standalone --nproc-per-node 2``.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS = 8, 110


class Rows(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        if dist.get_rank() == 1 and len(sys.argv) > 1:
            time.sleep(0.012 / BATCH)
        return torch.randn(64)


dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Rows(), batch_size=BATCH):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
del model  # its reducer must not outlive the process group: torch may wait forever
dist.destroy_process_group()
