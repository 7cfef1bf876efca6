"""Leaves the terminal by a double fork; the daemon trains and writes ``--out FILE`` at its end."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

EXPECTED_STEPS = 20  # in the daemon


def daemonise():
    if os.fork() > 0:
        sys.exit(0)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def train(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description="Trains in a daemon.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    parser.add_argument("--out", type=Path, help="file the daemon writes when it is done")
    args = parser.parse_args()

    out = args.out or Path(tempfile.mkdtemp()) / "daemon.txt"
    out = out.absolute()
    print(f"the daemon will write {out}", flush=True)
    daemonise()
    loss = train(args.steps)
    partial = out.with_suffix(".partial")
    partial.write_text(f"steps {args.steps} loss {loss:.6f}\n")
    partial.replace(out)


if __name__ == "__main__":
    main()
