# /// scenario
# suspect = "framework_overhead"
# cause = "host_sync"
# stage = "wait"
# fix = "read values from tensors rarely: item every N steps"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job that reads a value after every layer, and prints it."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(reads=24, after_read=500 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
