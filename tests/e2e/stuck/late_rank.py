"""DistributedDataParallel on two ranks, of which rank 1 sleeps before each forward pass.

late_rank.py STEPS SECONDS
"""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    if dist.get_rank() == 1:
        time.sleep(float(sys.argv[2]))
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
del model  # its reducer must not outlive the process group: torch may wait forever
dist.destroy_process_group()
