"""Planted fault: the model is thousands of operators on tiny tensors.

An LSTM written gate by gate in Python: dispatching each operator costs more than computing it.
"""

import argparse

import torch
from torch import nn

SUSPECT = "framework_overhead"
CAUSE = "tiny_operators"

BATCH = 4
TIMESTEPS = 140
FEATURES = 8
HIDDEN = 16


class Gate(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.from_input = nn.Parameter(torch.randn(inputs, hidden) / inputs**0.5)
        self.from_hidden = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x, h):
        return x @ self.from_input + h @ self.from_hidden + self.bias


class LSTM(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.input_gate = Gate(inputs, hidden)
        self.forget_gate = Gate(inputs, hidden)
        self.output_gate = Gate(inputs, hidden)
        self.candidate = Gate(inputs, hidden)

    def forward(self, sequence):
        h = sequence.new_zeros(sequence.shape[1], self.hidden)
        c = torch.zeros_like(h)
        outputs = []
        for x in sequence:
            i = torch.sigmoid(self.input_gate(x, h))
            f = torch.sigmoid(self.forget_gate(x, h))
            o = torch.sigmoid(self.output_gate(x, h))
            c = f * c + i * torch.tanh(self.candidate(x, h))
            h = o * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs)


def main():
    parser = argparse.ArgumentParser(description="Trains a hand-written LSTM.")
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = torch.randn(TIMESTEPS + 1, 256, FEATURES).cumsum(dim=0) / TIMESTEPS**0.5
    model = nn.Sequential(LSTM(FEATURES, HIDDEN), LSTM(HIDDEN, HIDDEN), nn.Linear(HIDDEN, FEATURES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for _ in range(args.steps):
        batch = data[:, torch.randint(0, data.shape[1], (BATCH,))]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:-1]), batch[1:])
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
