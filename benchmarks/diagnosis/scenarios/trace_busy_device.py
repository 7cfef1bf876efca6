# /// scenario
# healthy = true
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that keeps its GPU busy."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(kernel=300 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
