"""Shared code of drawn runs and traces: jobs that this machine cannot run.

A drawn run is drawn thread by thread. Drawn traces are those of a training step on a GPU, with
parameters that can be at fault: it fetches a batch, copies it, runs the layers of a model forwards
and backwards, exchanges gradients between ranks, updates the parameters and reads the loss. What a
trace shows follows from the simulation of host and streams (`stepscope.testing.traces`). Times are
microseconds. Such a script also accepts --run, the run directory to create.
"""

import argparse
import io
import random
import tempfile
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from stepscope.cli import root
from stepscope.testing import RunBuilder
from stepscope.testing.traces import HOST, TraceJob

STEPS = 6
UPDATES = 4
"""Kernels of the optimizer in a step."""
OPERATOR = 18
"""Time of the host to call an operator."""
TENSOR_CORES = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
PLAIN_CORES = "ampere_sgemm_128x64_nn"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor<float>>"
MULTI_TENSOR = "void at::native::multi_tensor_apply_kernel<Adam>"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step."""

    fetch: float = 300
    """Time of the training thread for a batch."""
    workers: bool = True
    copy: float = 400
    memory: str = "Pinned"
    layers: int = 24
    kernel: float = 300
    """Matrix product of a layer; twice in the backward pass."""
    reads: int = 1
    """Values read from tensors per step, the last one at its end."""
    after_read: float = 50
    """Python between a read and the next operator."""
    allocations: int = 0
    allocation: float = 0
    compiling: float = 0
    matrix_name: str = TENSOR_CORES
    blocks: float = 9.3
    exchange: float = 0
    """Collective after each quarter of the backward pass."""
    arrival: float = 0
    """Time that a rank waits for the last one, in the last collective."""


def drawn_arguments(description):
    """Parse the arguments; `builder` draws the run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args()
    args.builder = RunBuilder(args.run)
    return args


def report_drawn(builder, steps, samples):
    """Write the run and print the step time like a training script."""
    start, end = builder.processes[0].spans[0].start, builder.processes[0].now
    builder.write()
    print(f"{steps} steps of {samples} samples: {(end - start) / 1e6 / steps:.4f} ms a step")


def draw_step(job, step):
    """Draw one step."""
    with job.step():
        job.fetch(step.fetch, workers=step.workers)
        job.copy(step.copy, route=f"HtoD ({step.memory} -> Device)")
        if step.compiling:
            job.compile(step.compiling)
        if step.exchange:
            with job.range("DistributedDataParallel.forward"):
                draw_forward(job, step)
        else:
            draw_forward(job, step)
        draw_backward(job, step)
        with job.optimizer():
            for _ in range(UPDATES):
                job.operator("aten::_foreach_add_", OPERATOR, kernel=(MULTI_TENSOR, 4))
        if step.reads:
            job.item()


def draw_forward(job, step):
    """Draw the forward pass, with the values that are read in it and its allocations."""
    between = max(1, step.layers // max(1, step.reads))
    for layer in range(step.layers):
        kernel = (step.matrix_name, step.kernel)
        job.operator("aten::addmm", OPERATOR, kernel=kernel, **{"blocks per SM": step.blocks})
        job.operator("aten::gelu", OPERATOR, kernel=(ELEMENTWISE, min(20, step.kernel)))
        if layer < step.allocations:
            job.allocate(step.allocation)
            job.allocate(step.allocation, "cudaFree")
        if step.reads > 1 and layer % between == between - 1:
            job.item()
            job.python(step.after_read)


def draw_backward(job, step):
    """Draw the backward pass, with the exchange of gradients."""
    for layer in range(step.layers):
        for _ in range(2):
            kernel = (step.matrix_name, step.kernel)
            job.operator("aten::mm", OPERATOR, kernel=kernel, **{"blocks per SM": step.blocks})
        if step.exchange and layer % 6 == 5:
            waits = step.arrival if layer == step.layers - 1 else 0
            job.collective("AllReduce", step.exchange + waits)
    job.join()


def run_traced(description, faulty, fixed=(Step(),), *, draw=draw_step):
    """Draw the traces of a job, import them into the run, and print the step time.

    Args:
        description: of the scenario.
        faulty: makes the step of each rank from the severity, or a list of its steps in turn.
        fixed: the same for the fixed job.
        draw: draws a step.
    """
    args = drawn_arguments(description)
    steps = fixed if args.fixed else faulty(args.severity)
    jobs = []
    for rank, rank_steps in enumerate(steps):
        job = TraceJob(rank=rank if len(steps) > 1 else None, world_size=len(steps))
        turns = rank_steps if isinstance(rank_steps, list) else [rank_steps]
        for number in range(STEPS):
            draw(job, turns[number % len(turns)])
        jobs.append(job)
    report_traced(jobs, args.run)


def report_traced(jobs, run):
    """Write the traces of all ranks, import them into the run, and print the step time."""
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for rank, job in enumerate(jobs):
            job.wait()
            files.append(Path(directory, f"rank{rank}.json"))
            files[-1].write_bytes(job.encode())
        with redirect_stdout(io.StringIO()):
            root.main(["import", *map(str, files), "-o", str(run)], standalone_mode=False)
    print(f"{STEPS} steps of 64 samples: {jobs[-1].now / 1e3 / STEPS:.4f} ms a step")


class Variation:
    """Durations that vary at random, in quarters of a microsecond."""

    def __init__(self, seed, ratio):
        self._random = random.Random(seed)
        self._ratio = ratio

    def __call__(self, duration):
        return self.between(duration * (1 - self._ratio), duration * (1 + self._ratio))

    def between(self, low, high):
        """Draw a duration."""
        return round(self._random.uniform(low, high) * 4) / 4


@contextmanager
def outer(job, name):
    """Draw an operator around others."""
    start = job.now
    job.now += 2
    yield
    job._host("cpu_op", name, start, job.now - start)


@contextmanager
def autograd_thread(job):
    """Draw calls in the thread of autograd; the other thread waits without an event."""
    first = len(job.events)
    yield
    for event in job.events[first:]:
        if event["pid"] == HOST:
            event["tid"] = HOST + 1
