# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# fix = "overlap the copies: start the copy of the next batch before the computation"
# severities = [1.0, 1.5, 2.5]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a video model with a prefetching stream that never runs beside the computation.

The batch is pinned and copied on a stream of its own, but that stream first waits for the
computation, and the computation waits for the batch. The host is up to three steps ahead: it reads
the loss of every third step.
"""

# Arithmetic: the device computes 48 * (90 + 12) + 96 * 90 + 3 * 150 = 14.0 ms a step. The copy
# lasts 5 ms (125 MB at 25 GB/s) and nothing runs at the same time: 5 / 19 = 26% at the mildest severity.
# With the copy of the next batch beside the computation a step has the 14.0 ms (12.5 ms < 14.0 ms).

import random

from traced import ELEMENTWISE, MULTI_TENSOR, TENSOR_CORES, run_traced

from stepscope.testing.traces import COMPUTE_STREAM, COPY_STREAM

PARTS = (0.7, 0.2, 0.06, 0.04)
"""Shares of the tensors of a batch: frames, depth, masks, labels."""
random_times = random.Random(23)


def draw_step(job, step):
    """Draw a step: it copies its own batch and waits for it, or copies the next batch."""
    copy, late = step
    with job.step():
        job.fetch(vary(230), workers=True)
        if late:
            call(job, "cudaEventRecord")
            call(job, "cudaStreamWaitEvent")
            job.follow(COPY_STREAM)
            copy_batch(job, copy)
        call(job, "cudaEventRecord")
        call(job, "cudaStreamWaitEvent")
        job.free[COMPUTE_STREAM] = max(
            job.free.get(COMPUTE_STREAM, 0.0), job.free.get(COPY_STREAM, 0.0)
        )
        if not late:
            copy_batch(job, copy)
        for _ in range(48):
            job.operator("aten::linear", vary(16), kernel=(TENSOR_CORES, vary(90)))
            job.operator("aten::gelu", vary(9), kernel=(ELEMENTWISE, 12))
        for _ in range(96):
            job.operator("aten::mm", vary(17), kernel=(TENSOR_CORES, vary(90)))
        with job.optimizer("AdamW"):
            for _ in range(3):
                job.operator("aten::_fused_adamw_", 45, kernel=(MULTI_TENSOR, 150))
        if job._step % 3 == 2:
            job.item()


def copy_batch(job, copy):
    """Copy the tensors of a batch on the stream for copies."""
    with job.range("prefetch"):
        for part in PARTS:
            job.copy(round(copy * part), stream=COPY_STREAM)
            job.python(15)


def call(job, name):
    """Draw a short call of the runtime."""
    job._host("cuda_runtime", name, job.now, 2)
    job.now += 2


def vary(duration):
    """Vary a duration by some percent, in quarters of a microsecond."""
    return round(duration * random_times.uniform(0.95, 1.05) * 4) / 4


def make_steps(severity):
    """Make the copies of the ranks."""
    return [(5_000 * severity, True)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [(5_000 * severity, False)], draw=draw_step)
