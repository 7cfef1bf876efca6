"""Trains under control of a test: one command per line on stdin, one answer per line on stdout.

steps N           train N steps
work N            run N forward passes without an optimizer
profile N         train N steps under a profiler of the job; answers its number of events
plan W A          use a scheduled profiler of the job: W steps of warm-up, A recorded
fork              fork a child that trains a step and ends with status 5; answers its status
digest            answers a hash of the weights
exit CODE, raise  end
"""

import hashlib
import os
import signal
import sys
import threading

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
CHILD_TIMEOUT_S = 20


def steps(count):
    for _ in range(int(count)):
        optimizer.zero_grad()
        net(torch.ones(4, 16)).sum().backward()
        optimizer.step()
    return "done"


def work(count):
    for _ in range(int(count)):
        net(torch.ones(4, 16))
    return "done"


def profiled(count):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        steps(count)
    return len(profiler.events())


def planned(warm_up, active):
    counts = []
    plan = schedule(wait=0, warmup=int(warm_up), active=int(active), repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        on_trace_ready=lambda finished: counts.append(len(finished.events())),
    ) as profiler:
        for _ in range(int(warm_up) + int(active)):
            steps(1)
            profiler.step()
    return counts


def fork():
    child = os.fork()
    if child == 0:
        steps(1)
        sys.exit(5)
    timer = threading.Timer(CHILD_TIMEOUT_S, os.kill, (child, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    return os.waitstatus_to_exitcode(status)


def digest():
    sha = hashlib.sha256()
    for tensor in net.state_dict().values():
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()


COMMANDS = {
    "steps": steps,
    "work": work,
    "profile": profiled,
    "plan": planned,
    "fork": fork,
    "digest": digest,
}


def main():
    for line in sys.stdin:
        name, *arguments = line.split()
        if name == "exit":
            sys.exit(int(arguments[0]))
        if name == "raise":
            raise RuntimeError("requested by the test")
        print(COMMANDS[name](*arguments), flush=True)


main()
