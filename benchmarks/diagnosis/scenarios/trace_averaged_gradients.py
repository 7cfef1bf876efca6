# /// scenario
# suspect = "communication"
# cause = "collectives"
# stage = "communication"
# fix = "hide or shrink the exchange"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The traces of two ranks whose script averages each gradient after the backward pass."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, exchange):
    """Draw a step: nothing computes while gradients are averaged."""
    with job.step():
        job.fetch(200, workers=True)
        for _ in range(80):
            job.operator("aten::mm", 20, kernel=(TENSOR_CORES, 300))
        for _ in range(20):
            job.collective("AllReduce", exchange)
        job.join()
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 500))
        job.item()


def make_steps(severity):
    """Make the collectives of the ranks."""
    return [450 * severity] * 2


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [40] * 2, draw=draw_step)
