# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# fix = "replace the loop over elements by tensor operations"
# severities = [0.7, 1.0, 1.5]  # pairs in a batch
# ///
"""Trains an embedding so that pairs of the same class come out close."""

import torch
from common import Throughput, arguments, perceptron
from torch import nn

CLASSES = 10
STEPS = 130


def contrast(vectors, labels):
    total = vectors.new_zeros(())
    count = 0
    for i in range(len(vectors)):
        for j in range(i + 1, len(vectors)):
            distance = (vectors[i] - vectors[j]).square().sum()
            if labels[i] == labels[j]:
                total = total + distance
            else:
                total = total + torch.relu(1 - distance)
            count += 1
    return total / count


def contrast_at_once(vectors, labels):
    pairs = torch.triu_indices(len(vectors), len(vectors), offset=1)
    distance = (vectors[pairs[0]] - vectors[pairs[1]]).square().sum(dim=1)
    same = labels[pairs[0]] == labels[pairs[1]]
    return torch.where(same, distance, torch.relu(1 - distance)).mean()


class Contrast(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.body = perceptron(64, 64, 16)
        self.loss = loss

    def forward(self, inputs, labels):
        vectors = nn.functional.normalize(self.body(inputs), dim=1)
        return self.loss(vectors, labels)


def main():
    args = arguments(__doc__)
    batch = round(40 * args.severity**0.5)
    inputs = torch.randn(2048, 64)
    labels = torch.randint(0, CLASSES, (2048,))
    label_list = labels.tolist()
    model = Contrast(contrast_at_once if args.fixed else contrast)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter = Throughput()
    for _ in range(STEPS):
        rows = torch.randint(0, 2048, (batch,))
        optimizer.zero_grad()
        loss = model(
            inputs[rows], labels[rows] if args.fixed else [label_list[row] for row in rows]
        )
        loss.backward()
        optimizer.step()
        meter.update(batch)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
