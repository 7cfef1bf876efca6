# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# stage = "wait"
# fix = "remove explicit waits: synchronize"
# severities = [1.0, 1.5, 2.0]
# drawn = "traces"
# ///
"""The trace of a job that synchronizes after each block to time it, and writes the time to a file."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, write):
    """Draw a step: the device waits while the host writes."""
    with job.step():
        job.fetch(200, workers=True)
        for _ in range(16):
            for _ in range(4):
                job.operator("aten::conv2d", 30, kernel=(TENSOR_CORES, 350))
            if write:
                job.item()
                job.python(write)
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 500))
        job.item()


def make_steps(severity):
    """Make the times of writing of the ranks."""
    return [600 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [0], draw=draw_step)
