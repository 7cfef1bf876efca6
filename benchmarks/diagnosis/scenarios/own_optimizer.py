# /// scenario
# suspect = "model"
# cause = "optimizer"
# stage = "optimizer"
# accept = ["framework_overhead/tiny_operators"]
# fix = "use a fused or foreach optimizer"
# severities = [0.7, 1.0, 1.5]  # layers
# ///
"""Trains a deep narrow network with an optimizer of its own."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

BATCH = 32
STEPS = 130


def orthogonal(matrix, rounds=5):
    """The nearest orthogonal matrix, by the iteration of Newton and Schulz."""
    result = matrix / (matrix.norm() + 1e-7)
    for _ in range(rounds):
        square = result @ result.T
        result = 1.5 * result - 0.5 * square @ result
    return result


class Adaptive(torch.optim.Optimizer):
    """Orthogonal steps with a trust ratio per tensor, one tensor after another."""

    def __init__(self, parameters, lr=1e-3):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["mean"] = torch.zeros_like(weight)
                    state["square"] = torch.zeros_like(weight)
                    state["step"] = 0
                state["step"] += 1
                state["mean"] = 0.9 * state["mean"] + 0.1 * weight.grad
                state["square"] = 0.999 * state["square"] + 0.001 * weight.grad * weight.grad
                mean = state["mean"] / (1 - 0.9 ** state["step"])
                square = state["square"] / (1 - 0.999 ** state["step"])
                change = mean / (square.sqrt() + 1e-8) + 0.01 * weight
                if change.ndim == 2:
                    change = orthogonal(change)
                size, length = weight.norm(), change.norm()
                ratio = torch.where(size > 0, size / (length + 1e-6), torch.ones_like(size))
                weight.copy_(weight - group["lr"] * ratio.clamp(max=10) * change)


def main():
    args = arguments(__doc__)
    inputs = torch.randn(2048, 64)
    labels = torch.randint(0, 10, (2048,))
    model = perceptron(64, 64, 10, depth=round(60 * args.severity))
    kind = torch.optim.AdamW if args.fixed else Adaptive
    optimizer = kind(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 2048, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
