# /// scenario
# suspect = "model"
# cause = "optimizer"
# stage = "optimizer"
# fix = "make the optimizer cheaper: renew its preconditioners every N steps"
# severities = [0.7, 1.0, 1.4]  # width of the layers
# ///
"""Trains a model of insurance claims on tables, with gradients shaped as Shampoo does it."""

import torch
from common import Throughput, arguments
from torch import nn

ROWS = 8192
NUMBERS = 40
REGIONS = 50
BATCH = 256
STEPS = 600


class Shampoo(torch.optim.Optimizer):
    """Preconditions the gradients of matrices from both sides; others take plain steps."""

    def __init__(self, params, lr=0.02, renew=1, epsilon=1e-4):
        super().__init__(params, {"lr": lr, "renew": renew, "epsilon": epsilon})

    @staticmethod
    def root(statistics):
        """To the power of -1/4."""
        values, vectors = torch.linalg.eigh(statistics)
        return vectors * values.clamp(min=1e-6).pow(-0.25) @ vectors.T

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weights in group["params"]:
                gradient = weights.grad
                if weights.ndim == 2:
                    gradient = self.shaped(weights, group)
                weights.add_(gradient, alpha=-group["lr"])

    def shaped(self, weights, group):
        gradient, state = weights.grad, self.state[weights]
        if not state:
            state["steps"] = 0
            state["left"], state["right"] = (
                group["epsilon"] * torch.eye(size) for size in weights.shape
            )
        state["left"].addmm_(gradient, gradient.T)
        state["right"].addmm_(gradient.T, gradient)
        if state["steps"] % group["renew"] == 0:
            state["roots"] = self.root(state["left"]), self.root(state["right"])
        state["steps"] += 1
        left_root, right_root = state["roots"]
        return left_root @ gradient @ right_root


class Claims(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.region = nn.Embedding(REGIONS, 24)
        self.layers = nn.Sequential(
            nn.Linear(NUMBERS + 24, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, numbers, regions):
        return self.layers(torch.cat([numbers, self.region(regions)], dim=1)).squeeze(1)


def main():
    args = arguments(__doc__)
    numbers = torch.randn(ROWS, NUMBERS)
    regions = torch.randint(0, REGIONS, (ROWS,))
    amounts = (numbers[:, :5].sum(dim=1) + regions / REGIONS).exp().log1p()
    model = Claims(16 * round(14 * args.severity))
    optimizer = Shampoo(model.parameters(), renew=25 if args.fixed else 1)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, ROWS, (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(numbers[rows], regions[rows]), amounts[rows])
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
