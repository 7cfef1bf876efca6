"""Mixed precision with a gradient scaler; now and then the loss overflows and a step is skipped."""

import argparse

import torch
from torch import nn

EXPECTED_STEPS = 32  # iterations, the skipped ones included

OVERFLOW_EVERY = 8


def main():
    parser = argparse.ArgumentParser(description="Mixed-precision training with skipped steps.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.randn(1024, 64)
    y = x[:, :1].sin() + x[:, 1:2]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", enabled=True)

    skipped = 0
    for step in range(args.steps):
        rows = torch.randint(0, len(x), (64,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x[rows]).float(), y[rows])
        if step % OVERFLOW_EVERY == OVERFLOW_EVERY - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
    print(f"{skipped} of {args.steps} steps skipped, final scale {scaler.get_scale():.0f}")


if __name__ == "__main__":
    main()
