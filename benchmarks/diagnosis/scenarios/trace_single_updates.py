# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# stage = "calling"
# fix = "use a fused or foreach optimizer"
# severities = [1.0, 1.5, 2.5]
# drawn = "traces"
# ///
"""The trace of an optimizer that updates every parameter by kernels of its own."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(kernel=100, updates=round(800 * severity))]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(kernel=100)])
