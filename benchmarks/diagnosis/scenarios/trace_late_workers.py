# /// scenario
# suspect = "data_pipeline"
# cause = "slow_dataset"
# stage = "fetching"
# fix = ""
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose workers are late; it cannot show what they do."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(fetch=9_000 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
