# /// scenario
# healthy = true
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# held_out = true
# ///
"""The trace of a job whose host waits most of the time, because it is two steps ahead.

It waits for an event of the step before the last one, reads a loss that arrived long ago, and makes
its batches itself while the device computes.
"""

# Arithmetic: the device computes 64 * (0.15 + 0.02) + 128 * 0.15 + 0.9 = 31 ms a step, in an
# unbroken queue: the host needs 5 ms for its calls and 5 to 15 ms for a batch, 20 of 31 ms at most,
# and waits for the rest. The device is idle only until the first kernel (1 ms of 186 ms), and
# computes nothing during the copy of the batch (0.5 ms of 31 ms). Together 2%.

import random

from traced import ELEMENTWISE, MULTI_TENSOR, TENSOR_CORES, run_traced

from stepscope.testing.traces import COMPUTE_STREAM

random_times = random.Random(77)


def draw_step(job, step):
    """Draw a step, which ends with the batch of the next one."""
    fetch, ends = step
    with job.step():
        if len(ends) >= 2:
            wait_for_event(job, ends[-2])
            with job.range("read previous loss"):
                job.operator("aten::item", 4)
        job.copy(vary(500))
        for _ in range(64):
            job.operator("aten::linear", vary(19), kernel=(TENSOR_CORES, vary(150)))
            job.operator("aten::gelu", vary(9), kernel=(ELEMENTWISE, 20))
        for _ in range(128):
            job.operator("aten::mm", vary(20), kernel=(TENSOR_CORES, vary(150)))
        with job.optimizer("AdamW"):
            job.operator("aten::_fused_adamw_", 60, kernel=(MULTI_TENSOR, 900))
        job.copy(1.5, route="DtoH (Device -> Pinned)")
        job._host("cuda_runtime", "cudaEventRecord", job.now, 2)
        job.now += 2
        ends.append(job.free[COMPUTE_STREAM])
        job.fetch(vary(fetch), workers=False)


def wait_for_event(job, moment):
    """Wait until the device has passed an event."""
    start = job.now
    job.now = max(job.now + 2, moment + 4)
    job._host("cuda_runtime", "cudaEventSynchronize", start, job.now - start)


def vary(duration):
    """Vary a duration by some percent, in quarters of a microsecond."""
    return round(duration * random_times.uniform(0.93, 1.07) * 4) / 4


def make_steps(severity):
    """Make the steps of the ranks: the time of a batch, and the ends of the steps so far."""
    return [(5_000 * severity, [])]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [(500, [])], draw=draw_step)
