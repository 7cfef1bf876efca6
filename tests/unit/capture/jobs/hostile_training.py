"""Deterministic training whose objects, or stepscope's probes, misbehave.

Usage: hostile_training.py FAULT DIRECTORY, where FAULT is one of

    none           everything works
    objects raise  methods of the script's objects that stepscope has no need to call: whenever
                   stepscope calls one, it is counted
    probes raise, probes give garbage
                   the clock and the facts of every probe
    probes allocate and raise
                   the same, with a block of memory in a local variable

Prints the losses and a hash of the weights; then, on its last line, the counted calls. Prints the
numbers of blocks that were allocated, and that are left at its end, on standard error.
"""

import gc
import hashlib
import sys
import weakref
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import stepscope
from stepscope.capture import guard, session, startup
from stepscope.capture.guard import Probe

FAULT, DIRECTORY = sys.argv[1:]
NOT_STEPSCOPE = {"json", "json.encoder", "inspect", "contextlib"}
calls = []
blocks = []


class FaultError(Exception):
    pass


class Block:
    pass


def misbehave():
    if "allocate" in FAULT:
        block = Block()  # which the traceback holds
        blocks.append(weakref.ref(block))
    if FAULT.endswith("raise"):
        raise FaultError("misbehaves on purpose")
    return FaultError  # of no type that anything expects


def for_stepscope(name, value):
    """Return *value* to others; to stepscope, misbehave."""
    frame = sys._getframe(2)
    while frame.f_globals["__name__"] in NOT_STEPSCOPE:
        frame = frame.f_back
    if not frame.f_globals["__name__"].startswith("stepscope."):
        return value
    calls.append(name)
    return misbehave() if FAULT.startswith("objects") else value


def computed(name, value=None):
    return property(lambda _: for_stepscope(name, value))


class Hostile:
    def __len__(self):
        return for_stepscope("len", 3)

    def __bool__(self):
        return for_stepscope("bool", True)

    def __repr__(self):
        return for_stepscope("repr", "hostile")

    def __eq__(self, value):
        return for_stepscope("eq", self is value)

    __hash__ = object.__hash__


class Rows(Hostile, Dataset):
    def __init__(self):
        self.rows = torch.randn(64, 8)
        self.transform = Scale([Times(2), Times(3)])

    def __getitem__(self, index):
        return self.transform(self.rows[index])


class Times(Hostile):
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, row):
        return row * self.factor


class Scale(Hostile):
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, row):
        for transform in self.transforms:
            row = transform(row)
        return row


class Batches(Hostile):
    batch_size = computed("batch_size", 8)

    def __iter__(self):
        return iter(torch.randperm(64).view(8, 8).tolist())


class Collate(Hostile):
    def __getattr__(self, name):
        return for_stepscope(f"getattr {name}", None)

    def __call__(self, rows):
        return Batch(torch.stack(rows))


class Batch(Hostile):
    shape = computed("shape")
    nbytes = computed("nbytes")

    def __init__(self, rows):
        self.rows = rows


class Model(Hostile, nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def forward(self, batch):
        return self.layers(batch.rows)


class DistributedDataParallel(Model):
    """Has the name of a class that stepscope knows."""

    require_backward_grad_sync = computed("require_backward_grad_sync", True)

    def _get_ddp_logging_data(self):
        return {}


class OptimizedModule(Model):
    """The same, with a compiled module that is empty."""

    def __init__(self):
        super().__init__()
        self._orig_mod = Hostile.__new__(type("Inner", (Hostile, nn.Module), {}))
        nn.Module.__init__(self._orig_mod)


class Momentum(Hostile, torch.optim.SGD):
    pass


class RemotePath(Hostile):
    """A path whose file would be fetched, as those of cloudpathlib."""

    def __init__(self, path):
        self.path = path

    def write(self, data):
        with Path(self.path).open("ab") as file:
            return file.write(data)

    def flush(self):
        pass

    def __fspath__(self):
        return for_stepscope("fspath", self.path)


def break_probes():
    """Let every use of the clock by a probe, and every fact, misbehave."""

    def clock():
        calls.append(sys._getframe(1).f_locals["self"].name)
        return misbehave()

    def fact(self, fact, **fields):
        frame = sys._getframe(1)
        while frame and not isinstance(frame.f_locals.get("self"), Probe):
            frame = frame.f_back
        probe = frame.f_locals["self"] if frame else startup._probe  # the base of its thread
        calls.append(probe.name)
        raise TypeError(str(misbehave()))

    guard._now = clock
    session.Session.fact = fact
    guard.thread_logs = clock


def train(model, loader):
    optimizer = Momentum(model.parameters(), lr=0.01, momentum=0.9)
    for batch in loader:
        with stepscope.annotate("step", batch=batch):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
        stepscope.scalar("loss", loss)
        gc.collect()
        print(float(loss).hex())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if FAULT.startswith("probes"):
        break_probes()
    for make in (Model, DistributedDataParallel, OptimizedModule):
        model = make()
        loader = DataLoader(Rows(), batch_sampler=Batches(), collate_fn=Collate())
        train(model, loader)
        torch.save(model.layers.state_dict(), RemotePath(f"{DIRECTORY}/{make.__name__}.pt"))
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(hashlib.sha256(weights).hexdigest())
    print(sorted(set(calls)))
    print("blocks", len(blocks), sum(block() is not None for block in blocks), file=sys.stderr)


main()
