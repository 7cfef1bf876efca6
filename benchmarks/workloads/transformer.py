"""Small transformer on a GPU; it writes the duration of every step in seconds.

Usage: transformer.py OUT [--steps N] [--profile-from N --profile-steps M]
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument(
        "--profile-from", type=int, help="first step under torch.profiler with its defaults"
    )
    parser.add_argument("--profile-steps", type=int, default=20)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Linear(512, 1000)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    inputs = torch.randn(16, 256, 512, pin_memory=True)
    targets = torch.randint(0, 1000, (16, 256), pin_memory=True)
    profiler = torch.profiler.profile()
    first = arguments.profile_from
    last_profiled = None if first is None else first + arguments.profile_steps - 1
    seconds = []
    for step in range(arguments.steps):
        start = time.perf_counter()
        if step == first:
            profiler.start()
        images, labels = inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(images)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if step == last_profiled:
            profiler.stop()
            profiler.export_chrome_trace(str(arguments.out.with_suffix(".trace.json")))
        seconds.append(time.perf_counter() - start)
    arguments.out.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()
