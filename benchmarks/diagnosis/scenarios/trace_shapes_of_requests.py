# /// scenario
# suspect = "framework_overhead"
# cause = "recompilation"
# stage = "compiling"
# fix = "compile once for dynamic shapes: dynamic=True"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a server that compiles for the shape of each request."""

from traced import TENSOR_CORES, run_traced


def draw_step(job, compiling):
    """Draw a request, without marks of steps."""
    with job.range("request"):
        if compiling:
            job.compile(compiling)
        for _ in range(50):
            job.operator("aten::linear", 25, kernel=(TENSOR_CORES, 400))
        job.item()


def make_steps(severity):
    """Make the compiles of the ranks."""
    return [10_000 * severity]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [0], draw=draw_step)
