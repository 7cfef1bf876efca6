# /// scenario
# suspect = "model"
# cause = "full_precision"
# stage = "computation"
# fix = "use tensor cores: autocast, set_float32_matmul_precision"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a busy server that multiplies float32 matrices without tensor cores."""

from traced import PLAIN_CORES, run_traced


def draw_step(job, kernel):
    """Draw a request, and a short wait for the next one."""
    with job.range("request"):
        for _ in range(50):
            job.operator("aten::linear", 25, kernel=(PLAIN_CORES, kernel))
        job.item()
    job.python(2_000)


def make_steps(severity):
    """Make the kernels of the ranks."""
    return [400 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [100], draw=draw_step)
