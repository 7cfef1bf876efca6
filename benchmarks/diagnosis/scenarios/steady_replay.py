# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a controller of pendulums off-policy; what it has seen is kept and drawn again."""

import copy

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn

PENDULUMS = 16
FEATURES = 64
ACTIONS = 5
BATCH = 512
STEPS = 460


class Pendulums:
    """Many at once; what is seen of them is a random projection of angle and speed."""

    def __init__(self):
        self.angle = np.random.uniform(-np.pi, np.pi, PENDULUMS)
        self.speed = np.zeros(PENDULUMS)
        self.eyes = np.random.standard_normal((3, FEATURES))

    def seen(self):
        state = np.stack([np.cos(self.angle), np.sin(self.angle), self.speed], axis=1)
        noise = 0.2 * np.random.standard_normal((PENDULUMS, FEATURES))
        return (state @ self.eyes + noise).astype(np.float32)

    def act(self, actions):
        torque = actions - (ACTIONS - 1) / 2
        self.speed += 0.05 * (9.8 * np.sin(self.angle) + torque)
        self.speed = self.speed.clip(-8, 8)
        self.angle += 0.05 * self.speed
        return np.cos(self.angle).astype(np.float32)


class Memory:
    """The moves so far, the oldest overwritten once it is full."""

    def __init__(self, size=20_000):
        self.size = size
        self.moves = []
        self.oldest = 0

    def add(self, *move):
        if len(self.moves) < self.size:
            self.moves.append(move)
        else:
            self.moves[self.oldest] = move
            self.oldest = (self.oldest + 1) % self.size

    def sample(self, count):
        rows = np.random.randint(0, len(self.moves), size=count)
        columns = zip(*(self.moves[row] for row in rows), strict=True)
        return [torch.from_numpy(np.stack(column)) for column in columns]


class Agent:
    def __init__(self, width):
        self.model = perceptron(FEATURES, width, ACTIONS, depth=3)
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-4, fused=True)
        self.memory = Memory()

    @torch.no_grad()
    def actions(self, states, curiosity):
        best = self.model(torch.from_numpy(states)).argmax(dim=1).numpy()
        guess = np.random.randint(0, ACTIONS, size=len(best))
        return np.where(np.random.random(len(best)) < curiosity, guess, best)

    @torch.no_grad()
    def follow(self):
        parameters = list(self.target.parameters()), list(self.model.parameters())
        torch._foreach_lerp_(*parameters, 0.005)

    def learn(self, world, meter):
        model, optimizer = self.model, self.optimizer
        states_now = world.seen()
        for step in range(STEPS):
            actions = self.actions(states_now, max(0.1, 1 - step / 200))
            rewards, before, states_now = world.act(actions), states_now, world.seen()
            for move in zip(before, actions, rewards, states_now, strict=True):
                self.memory.add(*move)
            states, taken_actions, gained, following = self.memory.sample(BATCH)
            optimizer.zero_grad()
            with torch.no_grad():
                hoped = gained + 0.98 * self.target(following).amax(dim=1)
            values = model(states).gather(1, taken_actions.unsqueeze(1)).squeeze(1)
            loss = nn.functional.smooth_l1_loss(values, hoped)
            loss.backward()
            optimizer.step()
            self.follow()
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f} reward {rewards.mean():.3f}")
            meter.update(BATCH)


def main():
    args = arguments(__doc__)
    meter = Throughput()
    Agent(16 * round(24 * args.severity)).learn(Pendulums(), meter)
    meter.report()


if __name__ == "__main__":
    main()
