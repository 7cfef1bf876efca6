# /// scenario
# suspect = "framework_overhead"
# cause = "dispatch_overhead"
# stage = "calling"
# fix = "let a compiler fuse the operators: torch.compile"
# severities = [1.0, 1.5, 2.0]
# drawn = "traces"
# ///
"""The trace of a model whose operators are called through many layers of Python."""

from drawn import TENSOR_CORES, run_traced


def draw_step(job, gap):
    """Draw a step: calling a kernel takes the host longer than the device to run it."""
    with job.step():
        job.fetch(200, workers=True)
        for _ in range(300):
            job.operator("aten::conv2d", 35, kernel=(TENSOR_CORES, 55))
            job.python(gap)
        with job.optimizer():
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 800))
        job.item()


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [40 * severity], [5], draw=draw_step)
