"""Exchange gradients over gloo: `exchange.py COUNT`.

With READY, rank 0 creates that file in step 10, and the job goes on until it is ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import distributed

distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
number = 0
while number < int(sys.argv[1]) or "READY" in os.environ:
    loss = model(torch.randn(16, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    number += 1
    if "READY" in os.environ and number == 10 and distributed.get_rank() == 0:
        Path(os.environ["READY"]).touch()
del model  # its reducer must not outlive the process group: torch may wait forever
distributed.destroy_process_group()
