"""Training loops on the CPU, each with a bottleneck and with the fix for it.

A loop is a generator that yields at the end of each step. Its argument is false for the loop that
is recorded, and true with the fix. What a fix leaves out is a `time.sleep`, so that it takes no
core from the rest, or work of known size.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

Loop = Iterator[None]
BATCH = 8
MS = 1e-3


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A training loop with a bottleneck, the fix on the graph, and the true fix."""

    run: Callable[[bool], Loop]
    fix: str
    """As of `stepscope what-if RUN --fix`."""
    true_fix: str
    cause: str = ""
    suspect: str = ""
    """Cause and suspect whose share predicts the saving without the graph. Without a cause the
    largest of the suspect, without a suspect none."""
    ranks: int = 1
    is_off_path: bool = False

    @property
    def name(self) -> str:
        """Name of the loop."""
        return self.run.__name__


class SleepingDataset(Dataset[torch.Tensor]):
    """Samples that take a time to read, which costs no core."""

    def __init__(self, sample_s: float) -> None:
        self.sample_s = sample_s

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sample_s)
        return torch.full((64,), float(index % 7))


def _load(sample_ms: float, workers: int) -> Iterator[torch.Tensor]:
    dataset = SleepingDataset(sample_ms * MS)
    return iter(DataLoader(dataset, batch_size=BATCH, num_workers=workers))


def _make_matrix(size: int = 256) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, size, generator=generator) / size


def _compute(matrix: torch.Tensor, count: int) -> torch.Tensor:
    """Multiply matrices of 256 x 256 forward and backward: products of half a millisecond or more.

    Args:
        matrix: the matrix.
        count: number of products, a multiple of three.
    """
    weight = matrix.detach().requires_grad_()
    product = matrix.detach().clone().requires_grad_()
    for _ in range(count // 3):
        product = torch.mm(product, weight)
    product.sum().backward()
    return product.detach()


def batches_without_workers(fixed: bool) -> Loop:
    """Read each batch in the training thread."""
    matrix = _make_matrix()
    for _ in _load(1, 4 if fixed else 0):
        _compute(matrix, 12)
        yield


def too_few_workers(fixed: bool) -> Loop:
    """Wait for the only worker, which takes longer for a batch than the rest of the step."""
    matrix = _make_matrix()
    for _ in _load(3, 2 if fixed else 1):
        _compute(matrix, 6)
        yield


def compute_behind_input(fixed: bool) -> Loop:
    """Compute while the only worker prepares the next batch, which takes longer."""
    matrix = _make_matrix()
    for _ in _load(3, 1):
        _compute(matrix, 6 if fixed else 12)
        yield


def python_between_operators(fixed: bool) -> Loop:
    """Spend Python on each layer."""
    matrix = _make_matrix()
    while True:
        for _ in range(4):
            _compute(matrix, 3)
            if not fixed:
                sum(number * number for number in range(30_000))
        yield


def tiny_operators(fixed: bool) -> Loop:
    """Compute with many operators on a few numbers each, instead of with a few on all of them."""
    matrix, rows = _make_matrix(), [torch.randn(64) for _ in range(500)]
    together = torch.stack(rows)
    while True:
        _compute(matrix, 6)
        for row in [together] if fixed else rows:
            (row * 2 + 1).relu().sum(-1)
        yield


def optimizer_per_parameter(fixed: bool) -> Loop:
    """Update many small parameters one by one."""
    matrix = _make_matrix()
    parameters = [torch.nn.Parameter(torch.randn(16)) for _ in range(150)]
    for parameter in parameters:
        parameter.grad = torch.ones(16)
    optimizer = torch.optim.Adam(parameters, fused=fixed, foreach=None if fixed else False)
    while True:
        _compute(matrix, 9)
        optimizer.step()
        yield


def large_matrices(fixed: bool) -> Loop:
    """Multiply long matrices, next to other operators."""
    size = 256
    wide, tall = torch.randn(size, 1024), torch.randn(1024, size)
    if fixed:
        wide, tall = wide[:, :512].contiguous(), tall[:512].contiguous()
    batch = torch.randn(1, size, size)
    while True:
        for _ in range(2):
            torch.mm(wide, tall)
            for _ in range(3):
                torch.bmm(batch, batch)
        yield


def slow_rank(fixed: bool) -> Loop:
    """Let one of two ranks sleep in each step."""
    matrix, gradients = _make_matrix(), torch.ones(1000)
    is_slow = dist.get_rank() == 1 and not fixed
    while True:
        _compute(matrix, 9)
        if is_slow:
            time.sleep(10 * MS)
        dist.all_reduce(gradients)
        yield


def large_gradients(fixed: bool) -> Loop:
    """Exchange much data between two ranks."""
    matrix, gradients = _make_matrix(), torch.ones(1 << (20 if fixed else 21))
    while True:
        _compute(matrix, 6)
        dist.all_reduce(gradients)
        yield


def _run_beside(action: Callable[[], None]) -> Callable[[], None]:
    """Run an action again and again in a thread, and return how to end it."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            action()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return end


def hidden_prefetch(fixed: bool) -> Loop:
    """Read the next batch in a thread, in less time than the step takes."""
    matrix: torch.Tensor = _make_matrix()
    batches: queue.Queue[int] = queue.Queue(maxsize=1)

    def read() -> None:
        with record_function("read_batch"):
            time.sleep((1 if fixed else 6) * MS)
        try:
            batches.put(1, timeout=1)
        except queue.Full:
            return

    with _ended(_run_beside(read)):
        while True:
            batches.get()
            _compute(matrix, 30)
            yield


def background_writer(fixed: bool) -> Loop:
    """Write files in a thread."""
    matrix = _make_matrix()
    payload = bytes(1000)
    with tempfile.TemporaryDirectory() as directory:

        def write() -> None:
            with record_function("write_checkpoint"):
                Path(directory, "checkpoint").write_bytes(payload)
                time.sleep((1 if fixed else 10) * MS)
            time.sleep(10 * MS)

        with _ended(_run_beside(write)):
            while True:
                _compute(matrix, 21)
                yield


@contextmanager
def _ended(end: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        end()


def workers_ahead(fixed: bool) -> Loop:
    """Have workers that are ahead of the training thread."""
    matrix = _make_matrix()
    for _ in _load(0.5, 2 if fixed else 1):
        _compute(matrix, 24)
        yield


def fast_rank(fixed: bool) -> Loop:
    """Compute less on one of two ranks, with an operator of its own."""
    matrix, gradients = _make_matrix(), torch.ones(1000)
    batch, is_fast = matrix[None], dist.get_rank() == 0
    while True:
        if is_fast:
            for _ in range(3 if fixed else 6):
                torch.bmm(batch, batch)
        else:
            _compute(matrix, 21)
        dist.all_reduce(gradients)
        yield


def small_exchange(fixed: bool) -> Loop:
    """Exchange little while the other rank is late."""
    matrix, gradients = _make_matrix(), torch.ones(500 if fixed else 2000)
    is_late = dist.get_rank() == 1
    while True:
        _compute(matrix, 6)
        if is_late:
            time.sleep(30 * MS)
        dist.all_reduce(gradients)
        yield


INPUT = {"cause": "too_few_workers", "suspect": "data_pipeline"}
OVERHEAD = "framework_overhead"
JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job(run=batches_without_workers, fix="no-input", true_fix="num_workers 0 → 4", **INPUT),
        Job(run=too_few_workers, fix="workers=2", true_fix="num_workers 1 → 2", **INPUT),
        Job(
            run=python_between_operators,
            fix="no-python",
            true_fix="loops of Python left out",
            suspect=OVERHEAD,
        ),
        Job(
            run=tiny_operators,
            fix="no-launch-gaps",
            true_fix="500 rows in one tensor",
            suspect=OVERHEAD,
        ),
        Job(
            run=optimizer_per_parameter,
            fix="fused-optimizer",
            true_fix="Adam(fused=True)",
            suspect=OVERHEAD,
        ),
        Job(run=large_matrices, fix="faster:aten::mm=2", true_fix="half the inner size"),
        Job(
            run=slow_rank,
            fix="no-straggler",
            true_fix="no sleep on rank 1",
            cause="straggler",
            suspect=OVERHEAD,
            ranks=2,
        ),
        Job(
            run=large_gradients,
            fix="bandwidth=2",
            true_fix="half the data",
            cause="gradient_exchange",
            suspect="communication",
            ranks=2,
        ),
        Job(
            run=hidden_prefetch,
            fix="faster:read_batch=6",
            true_fix="reads in 1 ms instead of 6 ms",
            is_off_path=True,
        ),
        Job(
            run=background_writer,
            fix="faster:write_checkpoint=10",
            true_fix="writes in 1 ms instead of 10 ms",
            is_off_path=True,
        ),
        Job(
            run=workers_ahead,
            fix="workers=2",
            true_fix="num_workers 1 → 2",
            is_off_path=True,
            **INPUT,
        ),
        Job(
            run=compute_behind_input,
            fix="faster:aten::mm=2",
            true_fix="half as many products",
            is_off_path=True,
        ),
        Job(
            run=fast_rank,
            fix="faster:aten::bmm=2",
            true_fix="half as many products on rank 0",
            ranks=2,
            is_off_path=True,
        ),
        Job(
            run=small_exchange,
            fix="bandwidth=4",
            true_fix="a quarter of the data",
            cause="gradient_exchange",
            suspect="communication",
            ranks=2,
            is_off_path=True,
        ),
    )
}
