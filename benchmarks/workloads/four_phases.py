"""Training loop with steps of about 50 ms, four phases and two workers; it times its own steps.

Usage: four_phases.py OUT.json [--steps N] [--profiler] [--alternate N]

It writes the wall time of every step after warm-up, in nanoseconds. With --alternate, stepscope
records every other block of N steps; the first step of each block, which includes the switch, is
null.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WARM_UP = 20


class Vectors(Dataset):
    """Cheap samples: the workers are never late."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(256, generator=generator), index % 10


def switch(on):
    """Start or stop recording, including the stack sampler."""
    import stepscope
    from stepscope.capture import stacks

    if on:
        stepscope.start_profiling()
    else:
        stepscope.stop_profiling()
        stacks.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--alternate", type=int, metavar="N")
    parser.add_argument("--profiler", action="store_true", help="run under torch.profiler")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = 1024
    layers = [nn.Linear(256, width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_function = nn.CrossEntropyLoss()
    loader = DataLoader(Vectors(arguments.steps * 64), batch_size=64, num_workers=2)
    profiler = torch.profiler.profile() if arguments.profiler else contextlib.nullcontext()
    durations = []
    with profiler:
        start = time.perf_counter_ns()
        for step, (inputs, labels) in enumerate(loader):
            if arguments.alternate and step % arguments.alternate == 0:
                switch(step // arguments.alternate % 2 == 0)
            optimizer.zero_grad()
            loss_function(model(inputs), labels).backward()
            optimizer.step()
            now = time.perf_counter_ns()
            durations.append(now - start)
            start = now
    if arguments.alternate:
        durations[:: arguments.alternate] = [None] * len(durations[:: arguments.alternate])
    arguments.out.write_text(json.dumps(durations[WARM_UP:]))


if __name__ == "__main__":
    main()
