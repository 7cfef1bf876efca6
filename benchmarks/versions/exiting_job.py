"""Processes that train for a few steps and then end, each in the way that its name says.

    python exiting_job.py DIRECTORY COUNT WAY …

They are forked from a process that has imported torch and done nothing with it, because the import
takes a hundred times as long as the rest; each goes through the whole exit of the interpreter.
Under torchrun it is one rank, and starts no others. Each process has a directory: what it printed,
its checkpoint, and its exit status as `os.waitpid` returns it.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

with contextlib.suppress(ImportError):  # from PyTorch 2.0 on; the first optimizer imports it
    importlib.import_module("torch._dynamo")

STEPS, BATCH = 12, 4
alive: list[Any] = []
"""What lives until the exit."""


def main(directory: Path, count: int, ways: list[str]) -> None:
    if "RANK" in os.environ:
        run(directory / f"rank {os.environ['RANK']}", ways[0])
        return
    gc.freeze()  # what this process has imported: searching it takes most of an exit
    for number in range(count):
        for way in ways:
            process_directory = directory / f"{way} {number}"
            pid = os.fork()
            if not pid:
                run(process_directory, way)
                return
            _, status = os.waitpid(pid, 0)
            (process_directory / "status").write_text(str(status))


def run(directory: Path, way: str) -> None:
    """Train, and leave alive what the way says; the caller must return without more work."""
    directory.mkdir()
    os.chdir(directory)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), descriptor)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    data = TensorDataset(torch.randn(STEPS * BATCH, 8), torch.randn(STEPS * BATCH, 1))
    workers = {"num_workers": 2, "persistent_workers": True} if way == "workers" else {}
    loader = DataLoader(data, batch_size=BATCH, **workers)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if "RANK" in os.environ:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    alive.append(iter(loader))
    for inputs, targets in alive[0]:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
    if way == "thread":
        thread = threading.Thread(target=work_on, daemon=True)
        thread.start()
        alive.append(thread)
    if way == "fork":
        leave_child()
    torch.save({name: value.clone() for name, value in model.state_dict().items()}, "model.pt")
    print("last line")
    if way == "status":
        sys.exit(3)
    if way == "exception":
        raise RuntimeError("the last batch is damaged")
    if way == "signal":
        os.kill(os.getpid(), signal.SIGTERM)


def work_on() -> None:
    """Work until the process ends, without PyTorch: its exit differs from one to the next then."""
    while True:
        hashlib.sha256(bytes(10_000)).digest()
        time.sleep(0.0001)


def leave_child() -> None:
    """Leave a child that ends when this process has ended."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)


main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
