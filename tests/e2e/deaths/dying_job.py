"""Trains, and ends in the way of its first argument at step 30, or before any."""

import ctypes
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
LAST_STEP = 30
BATCH = 8


class Samples(Dataset):
    def __len__(self):
        return 100 * BATCH

    def __getitem__(self, index):
        if KIND == "worker" and index == LAST_STEP * BATCH:
            raise ValueError("damaged, api_key=sk-abcdefghijklmnopqrstuvwxyz")  # in a worker
        if KIND == "shm" and index >= LAST_STEP * BATCH:
            return torch.zeros(400_000)
        return torch.randn(64)


def end():
    if KIND != "exit":
        print("\r10%\r20%\nstep", LAST_STEP, file=sys.stderr)
    if KIND.isdigit():
        os.kill(os.getpid(), int(KIND))  # signal
    if KIND == "native":
        ctypes.string_at(0)  # native
    if KIND == "exit":
        print("giving up", file=sys.stderr)
        sys.exit(1)
    if KIND == "raise":
        raise RuntimeError("the loss is not finite")  # raised
    if KIND == "oom":
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")  # oom
    if KIND == "disk":
        torch.save(torch.ones(1_000_000), "/dev/full")  # disk


if __name__ == "__main__":
    if KIND == "early":
        sys.exit(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    workers = {"worker": 1, "shm": 2}.get(KIND, 0)
    for step, batch in enumerate(DataLoader(Samples(), BATCH, num_workers=workers)):
        if step == LAST_STEP:
            end()
        optimizer.zero_grad()
        model(batch[:, :64]).sum().backward()
        optimizer.step()
