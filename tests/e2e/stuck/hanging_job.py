"""Training that hangs after some steps.

hanging_job.py event     the training thread waits for an event that nothing sets
hanging_job.py worker    a DataLoader worker takes a lock that it has taken already
hanging_job.py none      nothing hangs; between the steps it evaluates for some seconds
"""

import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

FAULTY_STEP = 60
PAUSE_S = 9
lock = threading.Lock()
fault = sys.argv[1]


class Samples(Dataset):
    def __len__(self):
        return 2 * FAULTY_STEP

    def __getitem__(self, index):
        if fault == "worker" and index == FAULTY_STEP:
            lock.acquire()
            lock.acquire()  # by the same thread
        return torch.randn(8)


def wait_for_batch(ready):
    ready.wait()  # which nothing sets


def evaluate():
    time.sleep(PAUSE_S)


model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
for step, x in enumerate(DataLoader(Samples(), 1, num_workers=1 if fault == "worker" else 0)):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    if step == FAULTY_STEP and fault == "event":
        wait_for_batch(threading.Event())
    if step == FAULTY_STEP and fault == "none":
        evaluate()
