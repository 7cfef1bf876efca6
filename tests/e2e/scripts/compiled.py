"""A model wrapped by torch.compile, fed by a DataLoader."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECTED_STEPS = 30

BATCH = 32


def main():
    parser = argparse.ArgumentParser(description="Trains a compiled model.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    length = args.steps * BATCH
    dataset = TensorDataset(torch.randn(length, 64), torch.randint(0, 10, (length,)))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10))
    compiled_model = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled_model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
