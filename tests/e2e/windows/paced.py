"""Trains at a steady pace until a file exists: steps of about 10 ms, alone or under torchrun.

--until FILE      continue until this file exists
--slower FILE     steps take four times as long once this file exists
--no-optimizer    forward passes only
--out FILE        receives a hash of the weights (of rank 0)
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PACE_S = 0.01


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--slower", type=Path)
    parser.add_argument("--no-optimizer", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    ranks = "RANK" in os.environ
    if ranks:
        dist.init_process_group("gloo")
    net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(6)])
    model = DistributedDataParallel(net) if ranks else net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stop = torch.zeros(1)
    count = 0
    while count != arguments.steps and not stop.item():
        if arguments.no_optimizer:
            with torch.no_grad():
                model(torch.ones(4, 16))
        else:
            optimizer.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
        slow = arguments.slower is not None and arguments.slower.exists()
        time.sleep(PACE_S * (4 if slow else 1))
        count += 1
        if arguments.until is not None:
            stop.fill_(arguments.until.exists())
            if ranks:
                dist.all_reduce(stop)
    if arguments.out is not None and os.environ.get("RANK", "0") == "0":
        digest = hashlib.sha256()
        for tensor in net.state_dict().values():
            digest.update(tensor.numpy().tobytes())
        arguments.out.write_text(f"{count} {digest.hexdigest()}\n")
    if ranks:
        del model  # its reducer must not outlive the process group: torch may wait forever
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
