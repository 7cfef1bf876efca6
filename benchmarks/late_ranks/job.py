"""DistributedDataParallel over gloo, of which one rank may be slow.

    job.py --ranks 0,1 --world 4 --fault compute --rank 1 --steps 60 --extra 3

starts the ranks of one host. Batches take some milliseconds to load, forward and backward passes
as much; with a fault, one part of them takes `extra` times as long on the rank.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

LOAD_S, COMPUTE_S = 0.01, 0.005
BATCH, WIDTH = 32, 256


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--extra", type=float, default=3.0)
    return parser.parse_args()


def start_ranks(arguments: argparse.Namespace) -> int:
    """Start the ranks of this host, and wait for them."""
    jobs: list[subprocess.Popen[bytes]] = []
    for local_rank, rank in enumerate(arguments.ranks.split(",")):
        variables = {
            "RANK": rank,
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(arguments.world),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, *sys.argv]
        jobs.append(subprocess.Popen(command, env={**os.environ, **variables}))
    return max(job.wait() for job in jobs)


def compute_for(seconds: float) -> None:
    """Compute for some CPU time of this thread."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(range(500))


def train(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset

    rank = int(os.environ["RANK"])
    fault = arguments.fault if rank == arguments.rank else "none"
    extra = arguments.extra
    if arguments.fault == "cpu":  # the other processes on its core are not of the job
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:1] if fault == "cpu" else cores[1:])
    batch = round(BATCH * extra) if fault == "batches" else BATCH

    class Rows(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return batch * arguments.steps

        def __getitem__(self, index: int) -> torch.Tensor:
            if index % batch == 0:
                time.sleep(LOAD_S * (extra if fault == "input" else 1))
            return torch.ones(WIDTH)

    class Layer(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            share = len(rows) / BATCH
            compute_for(COMPUTE_S * share * (extra if fault == "compute" else 1))
            return super().forward(rows)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = nn.Sequential(Layer(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for rows in DataLoader(Rows(), batch_size=batch):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    del model  # its reducer must not outlive the process group: torch may wait forever
    dist.destroy_process_group()


if __name__ == "__main__":
    parsed = parse_arguments()
    if "LOCAL_RANK" in os.environ:
        train(parsed)
    else:
        sys.exit(start_ranks(parsed))
