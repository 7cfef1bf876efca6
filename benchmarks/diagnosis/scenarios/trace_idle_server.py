# /// scenario
# healthy = true
# severities = [1.0, 4.0, 20.0]
# drawn = "traces"
# ///
"""The trace with stacks of a server that waits for requests in a queue."""

from drawn import TENSOR_CORES, run_traced


def draw_step(job, waiting):
    """Draw a request, and the wait for the next one."""
    with job.function("server.py(20): serve"):
        with job.range("request"), job.function("server.py(31): answer"):
            for _ in range(50):
                job.operator("aten::linear", 25, kernel=(TENSOR_CORES, 400))
            job.item()
        with job.function("queue.py(154): get"):
            job.python(1)
            with job.function("threading.py(295): wait"):
                job.python(waiting)


if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [12_000 * severity], [100], draw=draw_step)
