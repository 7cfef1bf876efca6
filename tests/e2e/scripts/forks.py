"""Trains while it starts other processes: a bare fork that leaves by ``os._exit``, and a spawn."""

import argparse
import multiprocessing
import os

import torch
from torch import nn

EXPECTED_STEPS = 30  # in the parent; the children train nothing


def summarise(losses, queue):
    queue.put(sum(losses) / len(losses))


def report_in_child(step, loss):
    """Writes a line from a forked child, as a crude asynchronous logger."""
    pid = os.fork()
    if pid == 0:
        os.write(1, f"step {step} loss {loss:.4f}\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)


def main():
    parser = argparse.ArgumentParser(description="Training that forks and spawns.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(args.steps):
        x = torch.randn(64, 32)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 9:
            report_in_child(step, losses[-1])

    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=summarise, args=(losses, queue))
    child.start()
    print(f"mean loss {queue.get():.4f}")
    child.join()


if __name__ == "__main__":
    main()
