# /// scenario
# suspect = "model"
# cause = "compute"
# accept = ["healthy/none"]
# stage = "computation"
# fix = "make the arithmetic cheaper"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a large model that keeps its GPU busy."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(layers=48, kernel=3_000 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
