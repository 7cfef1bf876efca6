# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# fix = "move work out of the loop"
# severities = [0.6, 1.0, 1.6]  # priorities that change in a step
# quick = true
# ///
"""Trains a value network on replayed moves, the surprising ones more often."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron

MOVES = 1 << 14
BATCH = 64
STEPS = 160


class PriorityTree:
    """Sums of priorities over a binary tree, kept in plain lists."""

    def __init__(self):
        self.sums = [0.0] * (2 * MOVES)
        for index in range(MOVES):
            self.set(index, 1.0)

    def set(self, index, priority):
        node = index + MOVES
        change = priority - self.sums[node]
        while node:
            self.sums[node] += change
            node //= 2


class PriorityArray:
    """The same as one array; sums are not needed between two draws."""

    def __init__(self):
        self.priorities = np.ones(MOVES)

    def set(self, indices, priorities):
        self.priorities[indices] = priorities


def main():
    args = arguments(__doc__)
    changed = round(6000 * args.severity)
    states, values = torch.randn(MOVES, 64), torch.randn(MOVES)
    tree = PriorityArray() if args.fixed else PriorityTree()
    model = perceptron(64, 512, 1, depth=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, MOVES, (BATCH,))
        optimizer.zero_grad()
        errors = model(states[rows]).squeeze(1) - values[rows]
        loss = errors.square().mean()
        loss.backward()
        optimizer.step()
        surprise = float(loss.detach())
        if args.fixed:
            tree.set(np.random.randint(0, MOVES, size=changed), surprise)
        else:
            for index in np.random.randint(0, MOVES, size=changed).tolist():
                tree.set(index, surprise)
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
