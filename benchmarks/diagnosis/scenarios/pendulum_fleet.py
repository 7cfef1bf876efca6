# /// scenario
# healthy = true
# severities = [0.7, 1.0, 1.5]  # the width of the actor and the critics
# held_out = true
# ///
"""Swings up a fleet of pendulums with twin critics and a deterministic actor (TD3)."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from common import Throughput, arguments, perceptron
from torch import nn


class Fleet:
    """Sixteen pendulums that are stepped together."""

    def __init__(self, rng, count=16):
        self.rng, self.count = rng, count
        self.angle = rng.uniform(-np.pi, np.pi, count)
        self.speed = rng.uniform(-1, 1, count)

    def observe(self):
        return np.stack((np.cos(self.angle), np.sin(self.angle), self.speed / 8), axis=1).astype(
            np.float32
        )

    def step(self, torque):
        torque = 2 * torque[:, 0]
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(wrapped**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = np.clip(self.speed + 0.05 * (15 * np.sin(self.angle) + 3 * torque), -8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return self.observe(), reward.astype(np.float32)


class Replay:
    """A ring of transitions, one row each: state, action, reward, next state."""

    def __init__(self, rng, capacity=20_000):
        self.rows = np.zeros((capacity, 8), dtype=np.float32)
        self.rng, self.next, self.filled = rng, 0, 0

    def add(self, state, action, reward, following):
        rows = np.concatenate((state, action, reward[:, None], following), axis=1)
        indices = (self.next + np.arange(len(rows))) % len(self.rows)
        self.rows[indices] = rows
        self.next = (self.next + len(rows)) % len(self.rows)
        self.filled = min(self.filled + len(rows), len(self.rows))

    def sample(self, count):
        rows = torch.from_numpy(self.rows[self.rng.integers(0, self.filled, count)])
        return rows[:, :3], rows[:, 3:4], rows[:, 4:5], rows[:, 5:]


class Agent:
    def __init__(self, width):
        self.actor = nn.Sequential(perceptron(3, width, 1), nn.Tanh())
        self.critics = nn.ModuleList(perceptron(4, width, 1) for _ in range(2))
        self.target_actor = copy.deepcopy(self.actor)
        self.target_critics = copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=5e-4)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=1e-3)

    @torch.no_grad()
    def act(self, state, rng):
        action = self.actor(torch.from_numpy(state)).numpy()
        return np.clip(action + 0.2 * rng.standard_normal(action.shape), -1, 1).astype(np.float32)

    def update(self, state, action, reward, following, discount=0.98):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp_(-0.5, 0.5)
            ahead = torch.cat(
                (following, (self.target_actor(following) + noise).clamp(-1, 1)), dim=1
            )
            value = torch.minimum(*(critic(ahead) for critic in self.target_critics))
            goal = reward + discount * value
        pairs = torch.cat((state, action), dim=1)
        critic_loss = sum(F.mse_loss(critic(pairs), goal) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        self.critics.requires_grad_(False)
        actor_loss = -self.critics[0](torch.cat((state, self.actor(state)), dim=1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        self.critics.requires_grad_(True)
        self.follow(self.actor, self.target_actor)
        self.follow(self.critics, self.target_critics)
        return critic_loss.detach()

    @torch.no_grad()
    def follow(self, source, target, rate=0.005):
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), rate)


def main():
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    fleet, replay = Fleet(rng), Replay(rng)
    agent = Agent(int(448 * args.severity**0.5))
    state = fleet.observe()
    for _ in range(64):
        action = rng.uniform(-1, 1, (fleet.count, 1)).astype(np.float32)
        following, reward = fleet.step(action)
        replay.add(state, action, reward, following)
        state = following

    meter = Throughput()
    returns = 0.0
    for step in range(260):
        action = agent.act(state, rng)
        following, reward = fleet.step(action)
        replay.add(state, action, reward, following)
        state = following
        loss = agent.update(*replay.sample(704))
        returns += 0.05 * (float(reward.mean()) - returns)
        if step % 65 == 0:
            print(f"step {step}: reward {returns:.3f}, critic {loss.item():.4f}")
        meter.update(704)
    meter.report()


if __name__ == "__main__":
    main()
