# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# stage = "fetching"
# fix = "prepare batches in worker processes: num_workers"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose training process makes its batches itself."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(fetch=9_000 * severity, workers=False)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
