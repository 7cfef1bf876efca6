"""The shortest training loop: tensors in memory, no DataLoader."""

import argparse

import torch

EXPECTED_STEPS = 40


def main():
    parser = argparse.ArgumentParser(description="Fits a sine with a small network.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.linspace(-3.14, 3.14, 2000).unsqueeze(-1)
    y = torch.sin(x)
    model = torch.nn.Sequential(torch.nn.Linear(1, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
    loss_fn = torch.nn.MSELoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

    for t in range(args.steps):
        loss = loss_fn(model(x), y)
        if t % 10 == 9:
            print(t + 1, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
