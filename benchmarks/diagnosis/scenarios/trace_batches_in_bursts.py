# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# accept = ["data_pipeline/slow_dataset"]
# fix = "prepare batches in more worker processes: num_workers"
# severities = [1.0, 1.3, 2.0]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a job with three workers, which deliver three batches at once and then none.

The host reads no value, so it queues three steps and then waits for the next batches, first while
the device still computes.
"""

# Arithmetic: the device computes 30 * (0.16 + 0.02) + 60 * 0.23 + 0.8 = 20 ms a step, 60 ms for
# three batches. A worker needs 95 ms for a batch at the mildest severity: of each 95 ms the device
# computes 60 and waits 35 = 37%. (The host waits 85 ms, most of it hidden.)

import random

from traced import ELEMENTWISE, MULTI_TENSOR, TENSOR_CORES, run_traced

WORKERS = 3
random_times = random.Random(42)


def draw_step(job, step):
    """Draw a step: its batch is there at a moment."""
    number, period = step
    ready = (number + 1) // WORKERS * period
    with job.step():
        job.fetch(max(vary(180), ready - job.now), workers=True)
        job.copy(vary(600))
        for _ in range(30):
            job.operator("aten::linear", vary(22), kernel=(TENSOR_CORES, vary(160)))
            job.operator("aten::relu", vary(10), kernel=(ELEMENTWISE, 20))
        for _ in range(60):
            job.operator("aten::mm", vary(24), kernel=(TENSOR_CORES, vary(230)))
        with job.optimizer("AdamW"):
            job.operator("aten::_fused_adamw_", 60, kernel=(MULTI_TENSOR, 800))


def vary(duration):
    """Vary a duration by some percent, in quarters of a microsecond."""
    return round(duration * random_times.uniform(0.9, 1.1) * 4) / 4


def make_steps(severity):
    """Make the steps of the ranks: their number, and the time of a worker for a batch."""
    return [[(number, 95_000 * severity) for number in range(6)]]


if __name__ == "__main__":
    run_traced(
        __doc__, make_steps, lambda severity: [[(number, 0) for number in range(6)]], draw=draw_step
    )
