# /// scenario
# healthy = true
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose own fetches are hidden behind the work of its GPU."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(fetch=3_000 * severity, workers=False, reads=0)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
