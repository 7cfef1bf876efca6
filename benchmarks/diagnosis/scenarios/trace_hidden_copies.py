# /// scenario
# healthy = true
# severities = [1.0, 3.0, 6.0]
# drawn = "traces"
# ///
"""The trace of a job whose copies in both directions run beside its kernels."""

from traced import TENSOR_CORES, run_traced

from stepscope.testing.traces import COPY_STREAM


def draw_step(job, copy):
    """Draw a step that fetches the next batch and saves activations on a stream of their own."""
    with job.step():
        job.fetch(300, workers=True)
        job.copy(copy, stream=COPY_STREAM)
        for layer in range(60):
            job.operator("aten::linear", 20, kernel=(TENSOR_CORES, 350))
            if layer % 15 == 5:
                job.follow(COPY_STREAM)
                job.copy(copy / 2, route="DtoH (Device -> Pinned)", stream=COPY_STREAM)
        with job.optimizer():
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 500))
        job.item()


def make_steps(severity):
    """Make the copies of the ranks."""
    return [1_000 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [100], draw=draw_step)
