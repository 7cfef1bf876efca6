"""Sets the environment it wants and executes itself again before training."""

import argparse
import os
import sys
from pathlib import Path

EXPECTED_STEPS = 30

if os.environ.get("MALLOC_ARENA_MAX") != "2":
    os.environ["MALLOC_ARENA_MAX"] = "2"  # read once, when a process starts
    script = str(Path(__file__).resolve())
    os.execv(sys.executable, [sys.executable, script, *sys.argv[1:]])  # noqa: S606

import torch  # noqa: E402
from torch import nn  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description="Trains after replacing its own process.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(args.steps):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
