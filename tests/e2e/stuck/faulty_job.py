"""Training of a small model on several ranks, one of which does something else at one step.

faulty_job.py FAULT [SECONDS [RANK STEP]]     one of the faults below, by default for rank 1 at step
12; `none` for no fault
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 30
CHECKPOINT = "checkpoint"
"""Beginning of the names of faults that are none: rank 0 writes a checkpoint."""


def save_slowly(fault, model, seconds):
    """Write a checkpoint into a pipe whose reader takes some time."""
    directory = tempfile.mkdtemp()
    path = Path(directory) / "model.pt"
    os.mkfifo(path)
    drain = f"import sys, time; file = open(sys.argv[1], 'rb'); time.sleep({seconds}); file.read()"
    reader = subprocess.Popen([sys.executable, "-c", drain, path])
    state = {**model.state_dict(), "more": torch.zeros(1 << 20)}
    if fault == CHECKPOINT:
        with path.open("wb") as file:
            torch.save(state, file)
    else:
        save_checkpoint(state, path)
    reader.wait()
    shutil.rmtree(directory)


def save_checkpoint(state, path):
    """Write a checkpoint by hand, as some scripts do."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    with path.open("wb") as file:
        shutil.copyfileobj(buffer, file)


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
    fault, *rest = sys.argv[1:]
    seconds = float(rest[0]) if rest else 600.0
    faulty_rank, faulty_step = map(int, rest[1:] or (1, 12))
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
        if step == faulty_step and rank == 0 and fault.startswith(CHECKPOINT):
            save_slowly(fault, model, seconds)
        is_faulty = fault != "none" and not fault.startswith(CHECKPOINT)
        if step == faulty_step and rank == faulty_rank and is_faulty:
            misbehave(fault, second, seconds)
        else:
            dist.all_reduce(second)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
