"""Training loop on the CPU whose blocks of steps are recorded and not recorded alternately.

The caller replaces the monitor and opens our windows: the loop sends a request on stdout and waits
for a line on stdin. Windows of torch.profiler are opened here.

Usage: recorded_loop.py OUT [--net convolutions|small] [--steps N] [--rounds R] [--before B]
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

OWN_WINDOWS = ("light", "full", "full, shapes, stacks")
PEER_OPTIONS = {
    "torch.profiler": {},
    "torch.profiler, shapes, stacks": {"record_shapes": True, "with_stack": True},
    "torch.profiler, shapes, stacks, memory": {
        "record_shapes": True,
        "with_stack": True,
        "profile_memory": True,
    },
}
NO_RECORDER = "no recorder"
"""Baseline: noise of the machine in the longest of as many steps."""
MEMORY = "full, shapes, stacks, memory"
"""Recorded by our in-process use of the framework's profiler."""
SETTLE_STEPS = 25
"""Steps after a window while libkineto writes its file, so that the next block is undisturbed."""


def convolutions(width=32, depth=16):
    """Build a net with a few hundred operators per step of 0.1 s: small overhead of a recorder."""
    layers = []
    channels = 3
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return net, torch.randn(8, 3, 32, 32)


def small(width=32, depth=120):
    """Build a net with thousands of operators of a few microseconds: recording dominates."""
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10)), torch.randn(8, width)


NETS = {"convolutions": convolutions, "small": small}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--net", choices=NETS, default="convolutions")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=int, default=12)
    parser.add_argument("--only", nargs="*", help="recorders to run")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, inputs = NETS[arguments.net]()
    labels = torch.randint(0, 10, (len(inputs),))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    times = []

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    def timed(count):
        """Run steps and return their wall and thread-CPU times."""
        durations = []
        for _ in range(count):
            start, start_cpu = time.perf_counter_ns(), time.thread_time_ns()
            step()
            durations.append((time.perf_counter_ns() - start, time.thread_time_ns() - start_cpu))
        return durations

    def record_nothing(name):
        during = timed(arguments.steps)
        return during, timed(SETTLE_STEPS), 0

    def record_with_peer(name):
        path = Path(arguments.out).with_name(f"{name}.json")
        profiler = profile(activities=[ProfilerActivity.CPU], **PEER_OPTIONS[name])
        profiler.start()
        during = timed(arguments.steps)
        start = time.perf_counter_ns()
        profiler.stop()
        profiler.export_chrome_trace(str(path))
        stop_ns = time.perf_counter_ns() - start
        after = timed(SETTLE_STEPS)
        return during, [(stop_ns + after[0][0], after[0][1]), *after[1:]], path.stat().st_size

    def record_own_window(name):
        """Let the caller plan the window some steps ahead and reply when libkineto has the plan."""
        print(json.dumps({"open": name}), flush=True)
        sys.stdin.readline()
        # The window opens after two more boundaries. A boundary is the start of a forward pass.
        timed(2)
        during = timed(arguments.steps)
        after = timed(SETTLE_STEPS)
        print(json.dumps({"close": name}), flush=True)
        size = int(sys.stdin.readline())
        return during, after, size

    timed(10)
    names = arguments.only or [NO_RECORDER, *OWN_WINDOWS, MEMORY, *PEER_OPTIONS]
    recorders = {NO_RECORDER: record_nothing, **dict.fromkeys(PEER_OPTIONS, record_with_peer)}
    for number in range(arguments.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            before = timed(arguments.before)
            during, after, size = recorders.get(name, record_own_window)(name)
            times.append(
                {"name": name, "before": before, "during": during, "after": after, "size": size}
            )
    Path(arguments.out).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
