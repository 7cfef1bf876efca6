# /// scenario
# healthy = true
# severities = [0.5, 1.0, 2.0]
# drawn = "traces"
# ///
"""The traces of two ranks whose exchange of gradients is hidden."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(exchange=1_000 * severity)] * 2


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
