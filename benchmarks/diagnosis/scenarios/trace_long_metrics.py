# /// scenario
# suspect = "framework_overhead"
# cause = "python_overhead"
# stage = "Python"
# fix = "move work out of the loop"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace with stacks of a job that computes metrics in Python after each step."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, metrics):
    """Draw a step, with Python functions."""
    with job.step(), job.function("train.py(40): train_step"):
        job.fetch(200, workers=True)
        for _ in range(60):
            job.operator("aten::conv2d", 30, kernel=(TENSOR_CORES, 300))
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 500))
        job.copy(400, route="DtoH (Device -> Pageable)")
        with job.function("metrics.py(12): update"):
            job.python(metrics)


def make_steps(severity):
    """Make the times of metrics of the ranks."""
    return [30_000 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [100], draw=draw_step)
