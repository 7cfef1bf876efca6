"""Training of a small model on several ranks, one of which does something else at one step.

faulty_job.py FAULT [SECONDS]     one of the faults below, for rank 1; `none` for no fault
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEPS, FAULTY_STEP = 30, 12
CHECKPOINT = "checkpoint"


def save_slowly(path, seconds):
    """Write a checkpoint of parts that take some time."""

    class Slow:
        def __reduce__(self):
            time.sleep(seconds)
            return int, (1,)

    torch.save({"slow": Slow()}, path)


def misbehave(fault, second, seconds):
    """Do what the fault says in place of the second collective of a step."""
    if fault == "skip":
        return
    if fault == "kind":
        dist.broadcast(second, 0)
    elif fault == "sleep":
        time.sleep(seconds)  # asleep
        dist.all_reduce(second)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "shape":
        dist.all_reduce(torch.ones(33))
    elif fault == "dtype":
        dist.all_reduce(second.double())


def main():
    fault, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        time.sleep(0.02)
        dist.all_reduce(model.weight.grad)
        second = model.bias.grad
        if step == FAULTY_STEP and fault == CHECKPOINT and rank == 0:
            save_slowly(os.devnull, seconds)
        if step == FAULTY_STEP and rank == 1 and fault not in {"none", CHECKPOINT}:
            misbehave(fault, second, seconds)
        else:
            dist.all_reduce(second)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
