# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# fix = "move work out of the loop: fly all gliders with one operation on arrays"
# severities = [0.7, 1.0, 1.5]  # gliders that fly at a time
# ///
"""Teaches a pilot to keep gliders level, by policy gradients on simulated flights."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron

STEPS = 90
FLIGHT = 12
DRAG = np.array([[-0.2, 0.05], [0.1, -0.3]])


class Glider:
    """Height and tilt of one glider, in wind."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.state = self.rng.normal(size=2)
        return self.state

    def step(self, rudder):
        wind = self.rng.normal(scale=0.05, size=2)
        self.state = self.state + 0.1 * (DRAG @ self.state + np.array([rudder, -rudder]) + wind)
        self.state = np.clip(self.state, -5.0, 5.0)
        return self.state, -float(np.square(self.state).sum())


class Gliders:
    """All gliders at once, by the same equations."""

    def __init__(self, rng, count):
        self.rng, self.count = rng, count

    def reset(self):
        self.state = self.rng.normal(size=(self.count, 2))
        return self.state

    def step(self, rudder):
        wind = self.rng.normal(scale=0.05, size=(self.count, 2))
        force = np.stack([rudder, -rudder], axis=1)
        self.state = self.state + 0.1 * (self.state @ DRAG.T + force + wind)
        self.state = np.clip(self.state, -5.0, 5.0)
        return self.state, -np.square(self.state).sum(axis=1)


class Squadron:
    """Several gliders, flown one after another."""

    def __init__(self, rng, count):
        self.gliders = [Glider(rng) for _ in range(count)]

    def reset(self):
        return np.stack([glider.reset() for glider in self.gliders])

    def step(self, rudders):
        moves = [glider.step(rudder) for glider, rudder in zip(self.gliders, rudders, strict=True)]
        return np.stack([state for state, _ in moves]), np.array([reward for _, reward in moves])


def main():
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    count = round(160 * args.severity)
    fleet = Gliders(rng, count) if args.fixed else Squadron(rng, count)
    model = perceptron(2, 96, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    meter = Throughput()
    for step in range(STEPS):
        state, choices, rewards = fleet.reset(), [], []
        for _ in range(FLIGHT):
            logits = model(torch.as_tensor(state, dtype=torch.float32)).log_softmax(dim=1)
            rudder = torch.multinomial(logits.detach().exp(), 1)
            choices.append(logits.gather(1, rudder))
            state, reward = fleet.step(rudder.squeeze(1).numpy() - 0.5)
            rewards.append(reward)
        worth = torch.as_tensor(np.stack(rewards), dtype=torch.float32).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(choices).squeeze(2) * (worth - worth.mean(1, keepdim=True))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(count * FLIGHT)
        if step % 30 == 0:
            print(f"{step}: mean reward {np.mean(rewards):.3f}")
    meter.report()


if __name__ == "__main__":
    main()
