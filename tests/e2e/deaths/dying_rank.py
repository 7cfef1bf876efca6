"""Two ranks, of which rank 1 ends at step 30 by an exception, or by a signal."""

import os
import sys

import torch
from torch import distributed

distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
for step in range(100):
    if step == 30 and distributed.get_rank() == 1:
        if sys.argv[1] == "raise":
            raise ValueError("labels are out of range")  # rank
        os.kill(os.getpid(), int(sys.argv[1]))
    optimizer.zero_grad()
    model(torch.randn(8, 8)).sum().backward()
    optimizer.step()
