"""Small training job on one core for comparisons of runs: steps of about ten milliseconds.

--repeat 10     calls ten more blocks of the model: more work with the same parameters
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BLOCKS = 24
WIDTH = 256


class Net(nn.Module):
    def __init__(self, repeat):
        super().__init__()
        self.repeat = repeat
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 10)
        for block in self.blocks:  # otherwise gradients vanish, and denormal numbers are slow
            nn.init.kaiming_normal_(block.weight)

    def forward(self, x):
        for index in range(BLOCKS + self.repeat):
            x = torch.relu(self.blocks[index % BLOCKS](x))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = arguments.steps * arguments.batch
    data = TensorDataset(torch.randn(rows, WIDTH), torch.randint(10, (rows,)))
    net, loss = Net(arguments.repeat), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for inputs, targets in DataLoader(data, batch_size=arguments.batch):
        loss(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
