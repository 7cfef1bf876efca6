"""A training loop on the CPU, its steps in blocks: under a recorder, and under none, in turn.

The blocks of our own windows are opened by the caller, who stands in for the monitor: it is
asked for each over stdout and answers on stdin. Those of torch.profiler are opened here.

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

OWN = ("light", "full", "full, shapes, stacks")
THEIRS = {
    "torch.profiler": {},
    "torch.profiler, shapes, stacks": {"record_shapes": True, "with_stack": True},
    "torch.profiler, shapes, stacks, memory": {
        "record_shapes": True,
        "with_stack": True,
        "profile_memory": True,
    },
}
NOTHING = "no recorder"
"""What the machine itself adds to the longest of so many steps."""
MEMORY = "full, shapes, stacks, memory"
"""Recorded by the framework's profiler in our hands."""
SETTLE_STEPS = 25
"""After a window: libkineto writes its file, and the block that follows must not see that."""


def convolutions(width=32, depth=16):
    """A few hundred operators a step, which take a tenth of a second: a recorder costs little."""
    layers = []
    channels = 3
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return net, torch.randn(8, 3, 32, 32)


def small(width=32, depth=120):
    """Some thousand operators of a few microseconds a step: recording them is what costs."""
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
    parser.add_argument("--only", nargs="*", help="of the recorders")
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
        """Wall and thread-CPU times of so many steps."""
        found = []
        for _ in range(count):
            began, busy = time.perf_counter_ns(), time.thread_time_ns()
            step()
            found.append((time.perf_counter_ns() - began, time.thread_time_ns() - busy))
        return found

    def nothing(name):
        during = timed(arguments.steps)
        return during, timed(SETTLE_STEPS), 0

    def theirs(name):
        kept = Path(arguments.out).with_name(f"{name}.json")
        profiler = profile(activities=[ProfilerActivity.CPU], **THEIRS[name])
        profiler.start()
        during = timed(arguments.steps)
        began = time.perf_counter_ns()
        profiler.stop()
        profiler.export_chrome_trace(str(kept))
        stop_ns = time.perf_counter_ns() - began
        after = timed(SETTLE_STEPS)
        return during, [(stop_ns + after[0][0], after[0][1]), *after[1:]], kept.stat().st_size

    def ours(name):
        """The caller plans the window some steps ahead and says when libkineto knows."""
        print(json.dumps({"open": name}), flush=True)
        sys.stdin.readline()
        # The plan says: after two more boundaries. A boundary is the begin of a forward pass.
        timed(2)
        during = timed(arguments.steps)
        after = timed(SETTLE_STEPS)
        print(json.dumps({"close": name}), flush=True)
        size = int(sys.stdin.readline())
        return during, after, size

    timed(10)
    names = arguments.only or [NOTHING, *OWN, MEMORY, *THEIRS]
    recorders = {NOTHING: nothing, **dict.fromkeys(THEIRS, theirs)}
    for number in range(arguments.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            before = timed(arguments.before)
            during, after, size = recorders.get(name, ours)(name)
            times.append(
                {"name": name, "before": before, "during": during, "after": after, "size": size}
            )
    Path(arguments.out).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
