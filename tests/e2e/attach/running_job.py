"""A job that runs before the attachment: one worker with a slow transform, results on stdout."""

import time

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLE_S = 0.004


class Rows(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        return augment(index)


def augment(index):
    end = time.perf_counter() + SAMPLE_S
    while time.perf_counter() < end:
        pass
    return torch.full((16,), float(index % 7))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for step, batch in enumerate(DataLoader(Rows(), batch_size=8, num_workers=1)):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"done {step} {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()
