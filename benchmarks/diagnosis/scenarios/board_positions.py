# /// scenario
# suspect = "framework_overhead"
# cause = "small_batch"
# fix = "larger micro batches, fewer accumulation steps"
# severities = [0.7, 1.0, 1.5]  # how small the micro batches are: 8, 4, 2
# held_out = true
# ///
"""Learns to judge board positions from the outcome of games, with Accelerate."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TOTAL = 32
STEPS = 220


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class Judge(nn.Module):
    """Twelve planes of an eight by eight board; the value and the moved piece come out."""

    def __init__(self, width=96, depth=18):
        super().__init__()
        self.stem = nn.Linear(768, width)
        self.body = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.value = nn.Linear(width, 1)
        self.policy = nn.Linear(width, 64)

    def forward(self, board):
        hidden = self.body(self.stem(board))
        return torch.tanh(self.value(hidden)).squeeze(-1), self.policy(hidden)


def games(count):
    boards = (torch.rand(count, 768) < 0.04).float()
    material = boards[:, :384].sum(1) - boards[:, 384:].sum(1)
    return TensorDataset(boards, torch.tanh(material / 4), torch.randint(64, (count,)))


def main():
    args = arguments(__doc__)
    if args.fixed:
        micro = TOTAL
    else:
        micro = 8 if args.severity < 0.85 else 4 if args.severity < 1.25 else 2
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=TOTAL // micro)
    loader = DataLoader(games(2048), batch_size=micro, shuffle=True, drop_last=True)
    model = Judge()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    meter = Throughput()
    step, running = 0, 0.0
    while step < STEPS:
        for board, outcome, move in loader:
            with accelerator.accumulate(model):
                value, policy = model(board)
                loss = F.mse_loss(value, outcome) + 0.5 * F.cross_entropy(policy, move)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                running += 0.1 * (loss.item() - running)
                if step % 50 == 0:
                    accelerator.print(f"step {step}: loss {running:.4f}")
                meter.update(TOTAL)
                if step == STEPS:
                    break
    meter.report()


if __name__ == "__main__":
    main()
