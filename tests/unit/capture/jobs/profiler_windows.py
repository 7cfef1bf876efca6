"""Trains under the automatic window in one of several situations, named on the command line."""

import json
import os
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import stepscope
from stepscope.capture.frameworks.pytorch import window
from stepscope.capture.frameworks.pytorch.progress import progress

window.MIN_TRAINING_NS = 0
window.LONG_WINDOW_NS = 10**15  # this machine may be slow

net = nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        yield


def plain():
    list(train(40))


def waits_for_data():
    for _ in train(40):
        began = time.monotonic_ns()
        while time.monotonic_ns() - began < 100_000:
            pass
        progress.data_wait_ns += 10**12


def profiles_itself():
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        list(train(30))
    return len(profiler.events())


def profiles_itself_later():
    """Its own profiler starts while our window is open; it has to find the place free."""
    found = []
    plan = schedule(wait=13, warmup=1, active=2)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        on_trace_ready=lambda p: found.append(len(p.events())),
    ) as profiler:
        for _ in train(30):
            profiler.step()
    return found


SITUATIONS = [plain, waits_for_data, profiles_itself, profiles_itself_later]

for situation in SITUATIONS:
    if os.environ.get(window.WINDOW_VARIABLE) == "auto":  # each with a window of its own
        progress.step_count = 0
        progress._listeners.clear()
        progress.on_boundary(window._probe.protect(window._AutomaticWindow().on_boundary))
    with stepscope.annotate(situation.__name__, section=True):
        result = situation()
    print(json.dumps([situation.__name__, result]), file=sys.stdout)
