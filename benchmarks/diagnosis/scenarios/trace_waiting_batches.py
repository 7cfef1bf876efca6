# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# stage = "copies"
# fix = "pin and overlap the copies: pin_memory and non_blocking"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that moves the tensors of its batch one by one, and waits for each of them."""

from traced import TENSOR_CORES, run_traced

TENSORS = 6


def draw_step(job, copy):
    """Draw a step: after each copy the script prepares the next tensor."""
    with job.step():
        job.fetch(400, workers=True)
        for _ in range(TENSORS):
            if copy:
                job.blocking_copy(copy, route="HtoD (Pageable -> Device)")
                job.python(60)
        for _ in range(90):
            job.operator("aten::conv2d", 30, kernel=(TENSOR_CORES, 250))
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 500))
        job.item()


def make_steps(severity):
    """Make the copies of the ranks."""
    return [1_500 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [0], draw=draw_step)
