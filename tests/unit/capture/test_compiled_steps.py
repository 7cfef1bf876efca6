"""The compiled calls of a training step: the log is that of Python, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from stepscope.spool import RECORD_WORDS, Kind, native, record
from tests.conftest import Spool

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

import stepscope
from stepscope.capture import guard, session
from stepscope.capture.frameworks.progress import progress
from stepscope.spool import Flag, Kind, native

time = [10**9]
clock = lambda: time[0]
for module in list(sys.modules.values()):
    if module.__name__.startswith("stepscope.capture") and hasattr(module, "_now"):
        module._now = clock
if native is not None:
    native.use_clock(clock)

class Layer(torch.nn.Linear):
    def forward(self, x):
        time[0] += 1000
        if fails[0]:
            raise ValueError
        return super().forward(x)

class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x
    @staticmethod
    def backward(context, gradient):
        time[0] += 500
        return gradient

probe = guard.Probe("intervals that have ended", coarse=True)
fails = [False]
torch.manual_seed(0)
model = torch.nn.Sequential(Layer(2, 2), Layer(2, 1))
other = Layer(2, 1)
loss_function = torch.nn.MSELoss()
data = DataLoader(TensorDataset(torch.randn(32, 2), torch.randn(32, 1)), batch_size=2)
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]

def train(inputs, labels, chosen=0):
    time[0] += 10
    optimizers[chosen].zero_grad()
    output = (model, other)[chosen](inputs)
    loss_function(Gradient.apply(output), labels).backward()
    time[0] += 7
    optimizers[chosen].step()

def expect(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError

for epoch in range(80):  # more than a segment of records
    for number, batch in enumerate(data):
        train(*batch, chosen=epoch % 7 == 6)
    if epoch % 5 == 1:
        model.eval()
        with torch.no_grad():
            model(batch[0]); model(input=batch[0]); other(batch[0])
        model.train()
        model(batch[0])
    if epoch % 5 == 2:
        fails[0] = True
        expect(ValueError, model, batch[0])
        fails[0] = False
        expect(AttributeError, optimizers[0].step, lambda: model.fail)
        expect(RuntimeError, loss_function(model(batch[0]).detach(), batch[1]).backward)
        probe.write(Kind.DEVICE, "execution", time[0] - 5, time[0], -3, Flag.NO_RESULT)
        probe.write(Kind.DEVICE, f"execution {epoch}", start_ns=time[0] - 4, end_ns=time[0])
        progress.notify_optimizer_step()
        progress.notify_work_start()
    if epoch % 5 == 3:
        torch.autograd.grad(model(batch[0]).sum(), list(model.parameters()))
        for _ in range(3):  # micro-batches
            loss_function(model(batch[0]), batch[1]).backward()
        optimizers[0].step(lambda: loss_function(model(batch[0]), batch[1]))
    if epoch == 40:
        session.pause()
        train(*batch)
        probe.write(Kind.DEVICE, "execution", 1, 2)
        session.resume()
    if epoch == 50:
        for number in range(3):
            train(*batch)
            stepscope.step(number)
"""


def _read(spool: Spool) -> tuple[np.ndarray, list[str | None]]:
    """Read the records of the training thread without addresses of objects, and their names."""
    segments = sorted(
        spool.path.glob("p-*/*c-*.log"), key=lambda path: int(path.stem.split("-")[-1])
    )
    words = [np.fromfile(path, np.uint64, offset=record.HEADER_BYTES) for path in segments]
    records = np.concatenate([w[: len(w) // RECORD_WORDS * RECORD_WORDS] for w in words])
    records = records.reshape(-1, RECORD_WORDS)
    kinds = records[:, 2] >> np.uint64(24) & np.uint64(0xFF)
    records[kinds == Kind.FORWARD, 3] &= np.uint64((1 << record.SIZE_BITS) - 1)
    records[kinds == Kind.OPTIMIZER, 3] = 0
    (journal,) = spool.path.glob("p-*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line]
    names = {line["id"]: line["text"] for line in lines if line["k"] == "name"}
    numbers = records[:, 2] >> np.uint64(32)
    records[:, 2] &= np.uint64(0xFFFF_FFFF)
    return records, [names.get(int(number)) for number in numbers]


@pytest.mark.skipif(native is None, reason="the library is not built")
def test_the_records_are_those_of_python(new_spool: Callable[[str], Spool]) -> None:
    spools = [new_spool(variable) for variable in ("0", "1")]
    for spool, variable in zip(spools, ("0", "1"), strict=True):
        spool.run_torch(SCRIPT, STEPSCOPE_NATIVE=variable)
    (python, python_names), (compiled, compiled_names) = map(_read, spools)
    assert np.count_nonzero(python[:, 0]) > 80 * 16 * 4
    np.testing.assert_array_equal(compiled, python)
    assert compiled_names == python_names
