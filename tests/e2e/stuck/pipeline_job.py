"""Training of a pipeline whose stages have nothing but sends and receives.

pipeline_job.py FAULT [SECONDS]     one of the faults below, for the last rank but one; or `none`
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEPS, FAULTY_STEP = 30, 12


def send(tensor, peer, is_batched):
    if is_batched:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, peer)]):
            work.wait()
    else:
        dist.send(tensor, peer)


def receive(tensor, peer, is_batched):
    if is_batched:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, peer)]):
            work.wait()
    else:
        dist.recv(tensor, peer)
    return tensor


def misbehave(fault, seconds):
    """Do what the fault says before the activations are sent."""
    if fault in {"sleep", "batched"}:
        time.sleep(seconds)  # asleep
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "cross":
        dist.recv(torch.empty(4, 8), dist.get_rank() - 1)


def main():
    fault, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
    is_batched = fault == "batched"
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stage = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(4, 8)
        if rank > 0:
            inputs = receive(torch.empty(4, 8), rank - 1, is_batched).requires_grad_()
        outputs = stage(inputs)
        time.sleep(0.02)
        if step == FAULTY_STEP and rank == last - 1:
            misbehave(fault, seconds)
        if rank < last:
            send(outputs.detach(), rank + 1, is_batched)
            outputs.backward(receive(torch.empty(4, 8), rank + 1, is_batched))
        else:
            outputs.square().mean().backward()
        if rank > 0:
            send(inputs.grad, rank - 1, is_batched)
        optimizer.step()
    dist.destroy_process_group()


try:
    main()
finally:
    # The ranks that a killed one leaves behind end later than their stacks are sampled.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.3)
