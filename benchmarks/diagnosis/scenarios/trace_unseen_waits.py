# /// scenario
# healthy = true
# severities = [1.0, 4.0, 20.0]
# drawn = "traces"
# ///
"""The trace without stacks of a server that waits for requests; it does not show the wait."""

from drawn import TENSOR_CORES, run_traced


def draw_step(job, waiting):
    """Draw a request, and the wait for the next one."""
    with job.range("request"):
        for _ in range(50):
            job.operator("aten::linear", 25, kernel=(TENSOR_CORES, 400))
        job.item()
    job.python(waiting)


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [12_000 * severity], [100], draw=draw_step)
