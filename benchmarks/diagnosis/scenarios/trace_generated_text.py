# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# stage = "calling"
# fix = "let a compiler fuse the operators: torch.compile"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a server that generates text token by token with tiny kernels."""

from traced import TENSOR_CORES, run_traced

TOKENS = 12


def draw_step(job, model):
    """Draw a request: after each token its value is read."""
    operators, kernel = model
    with job.range("request"):
        for _ in range(TOKENS):
            for _ in range(operators):
                job.operator("aten::linear", 22, kernel=(TENSOR_CORES, kernel))
            job.item()
            job.python(80)


def make_steps(severity):
    """Make the operators per token of the ranks, and their kernels."""
    return [(120, 9 / severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [(10, 100)], draw=draw_step)
