# /// scenario
# healthy = true
# severities = [0.5, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a server that is almost always busy with a request."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, waiting):
    """Draw a request, and a short wait for the next one."""
    with job.range("request"):
        job.copy(300, route="HtoD (Pageable -> Device)")
        for _ in range(50):
            job.operator("aten::linear", 25, kernel=(TENSOR_CORES, 400))
        job.item()
    job.python(waiting)


def make_steps(severity):
    """Make the waits of the ranks."""
    return [1_000 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [100], draw=draw_step)
