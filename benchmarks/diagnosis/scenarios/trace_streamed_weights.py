# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# stage = "copies"
# fix = "overlap the copies"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a large model whose weights come from pinned memory, on the stream of its layers."""

from traced import ELEMENTWISE, TENSOR_CORES, run_traced

LAYERS = 40


def draw_step(job, copy):
    """Draw a step: each layer waits for its weights, the host for none of them."""
    with job.step():
        job.fetch(200, workers=True)
        for direction in ("forward", "backward"):
            for _ in range(LAYERS):
                if copy:
                    job.copy(copy)
                job.operator("aten::linear", 25, kernel=(TENSOR_CORES, 700))
                job.operator(f"aten::layer_norm_{direction}", 15, kernel=(ELEMENTWISE, 60))
        with job.optimizer("SGD"):
            job.operator("aten::_foreach_add_", 40, kernel=(ELEMENTWISE, 900))
        job.item()


def make_steps(severity):
    """Make the copies of the ranks."""
    return [320 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [0], draw=draw_step)
