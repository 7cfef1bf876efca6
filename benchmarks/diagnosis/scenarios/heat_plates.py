# /// scenario
# suspect = "model"
# cause = "optimizer"
# fix = "refresh the preconditioners every few steps only"
# severities = [0.7, 1.0, 1.5]  # how small the batches are beside the preconditioners
# held_out = true
# ///
"""Fits a surrogate for the temperature of heated plates, preconditioned as in Shampoo."""

import math

import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.optim import Optimizer


def inverse_root(matrix, root, ridge=1e-4):
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=0) + ridge * values[-1].clamp(min=1e-12)
    return vectors * values.pow(-1 / root) @ vectors.mT


class Shampoo(Optimizer):
    """Shampoo on blocks of the matrices, grafted onto the size of the gradient; SGD for the rest."""

    def __init__(self, params, lr=1e-2, momentum=0.9, decay=0.95, block=128, refresh=1):
        super().__init__(
            params, dict(lr=lr, momentum=momentum, decay=decay, block=block, refresh=refresh)
        )

    def blocks(self, gradient, size):
        for rows in gradient.split(size, dim=0):
            yield from rows.split(size, dim=1)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["velocity"] = torch.zeros_like(parameter)
                    if gradient.ndim == 2 and min(gradient.shape) > 8:
                        state["factors"] = [
                            [torch.zeros(n, n) for n in block.shape]
                            for block in self.blocks(gradient, group["block"])
                        ]
                        state["roots"] = [None] * len(state["factors"])
                if "factors" in state:
                    gradient = self.precondition(gradient.clone(), state, group)
                state["step"] += 1
                state["velocity"].mul_(group["momentum"]).add_(gradient)
                parameter.add_(state["velocity"], alpha=-group["lr"])

    def precondition(self, gradient, state, group):
        decay = group["decay"]
        fresh = state["step"] % group["refresh"] == 0
        for k, block in enumerate(self.blocks(gradient, group["block"])):
            left_factor, right_factor = state["factors"][k]
            left_factor.mul_(decay).addmm_(block, block.mT, alpha=1 - decay)
            right_factor.mul_(decay).addmm_(block.mT, block, alpha=1 - decay)
            if fresh or state["roots"][k] is None:
                state["roots"][k] = inverse_root(left_factor, 4), inverse_root(right_factor, 4)
            first, second = state["roots"][k]
            update = first @ block @ second
            block.copy_(update * (block.norm() / update.norm().clamp(min=1e-12)))
        return gradient


class Plates:
    """Heat sources on a plate; the temperature at 24 sensors by a sum of smooth kernels."""

    def __init__(self, sources=32):
        self.places = torch.rand(sources, 2)
        self.sensors = torch.rand(24, 2)
        distance = (self.sensors[:, None] - self.places).square().sum(-1)
        self.kernel = torch.exp(-8 * distance)

    def sample(self, count):
        power = torch.rand(count, len(self.places))
        return power, torch.log1p(power @ self.kernel.T)


def main():
    args = arguments(__doc__)
    plates = Plates()
    model = perceptron(32, 256, 24, depth=4)
    optimizer = Shampoo(model.parameters(), lr=0.02, block=128, refresh=20 if args.fixed else 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / 290))
    )
    criterion = nn.HuberLoss()
    meter = Throughput()
    batch = int(640 / args.severity)
    for step in range(290):
        power, temperature = plates.sample(batch)
        loss = criterion(model(power), temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"{step:4d}  loss {loss.item():.5f}")
        meter.update(batch)
    meter.report()


if __name__ == "__main__":
    main()
