# /// scenario
# suspect = "communication"
# cause = "gradient_exchange"
# stage = "communication"
# fix = "exchange less, or hide it better: no_sync"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of two ranks whose last exchange of gradients nothing hides."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(exchange=500, arrival=9_000 * severity)] * 2


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(exchange=500)] * 2)
