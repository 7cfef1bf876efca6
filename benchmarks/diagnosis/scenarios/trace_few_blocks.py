# /// scenario
# suspect = "model"
# cause = "low_occupancy"
# stage = "computation"
# fix = "give each operator more to do: a larger batch"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job whose batch is too small for the multiprocessors of its GPU."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(blocks=0.3 / severity, kernel=600)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(kernel=100)])
