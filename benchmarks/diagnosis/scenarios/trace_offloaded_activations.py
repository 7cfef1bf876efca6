# /// scenario
# suspect = "framework_overhead"
# cause = "device_to_host_copies"
# stage = "copies"
# fix = "copy to the host beside the computation"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that offloads activations to pinned memory, on the stream of its layers."""

from drawn import TENSOR_CORES, run_traced

LAYERS = 32


def draw_step(job, copy):
    """Draw a step: the host waits for no copy, but reads the loss at the end."""
    with job.step():
        job.fetch(200, workers=True)
        for _ in range(LAYERS):
            job.operator("aten::linear", 20, kernel=(TENSOR_CORES, 500))
            if copy:
                job.copy(copy, route="DtoH (Device -> Pinned)")
        for _ in range(LAYERS):
            job.operator("aten::mm", 20, kernel=(TENSOR_CORES, 1_000))
        with job.optimizer():
            job.operator("aten::_foreach_add_", 40, kernel=(TENSOR_CORES, 800))
        job.item()


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [700 * severity], [0], draw=draw_step)
