# /// scenario
# suspect = "model"
# cause = "optimizer"
# stage = "computation"
# fix = "use a fused or foreach optimizer"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose optimizer computes longer than its passes."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, update):
    """Draw a step whose update multiplies matrices."""
    with job.step():
        job.fetch(200, workers=True)
        for _ in range(40):
            job.operator("aten::mm", 20, kernel=(TENSOR_CORES, 250))
        with job.optimizer("Shampoo"):
            for _ in range(30):
                job.operator("aten::mm", 20, kernel=(TENSOR_CORES, update))
        job.item()


def make_steps(severity):
    """Make the updates of the ranks."""
    return [300 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [20], draw=draw_step)
