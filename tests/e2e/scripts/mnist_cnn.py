"""A CNN on digit-like images: a training and a test loop in every epoch."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset

EXPECTED_STEPS = 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(2304, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(torch.flatten(x, 1))
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def synthetic_digits(count, seed):
    """One bright bar per class on a noisy background."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 0.3 * torch.randn(count, 1, 28, 28, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 2 * label : 2 * label + 4] += 1.0
    return TensorDataset(images, labels)


def train(model, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % 8 == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(loader)}]\tLoss: {loss.item():.6f}")


def test(model, loader):
    model.eval()
    test_loss = 0.0
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            correct += (output.argmax(dim=1) == target).sum().item()
    count = len(loader.dataset)
    print(f"Test set: Average loss: {test_loss / count:.4f}, Accuracy: {correct}/{count}")


def main():
    parser = argparse.ArgumentParser(description="Digit classification.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS, help="over all epochs")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(1)
    count = args.steps // args.epochs * args.batch_size
    train_loader = DataLoader(synthetic_digits(count, 1), args.batch_size, shuffle=True)
    test_loader = DataLoader(synthetic_digits(160, 2), batch_size=80)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(model, train_loader, optimizer, epoch)
        test(model, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
