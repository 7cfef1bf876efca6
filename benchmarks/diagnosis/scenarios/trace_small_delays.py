# /// scenario
# healthy = true
# severities = [0.5, 1.0, 2.0]
# drawn = "traces"
# ///
"""The trace of a job with a little of everything, none of it large enough for a fix."""

from drawn import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [
        Step(
            fetch=800 * severity,
            copy=600 * severity,
            reads=3,
            after_read=150 * severity,
            compiling=300 * severity,
        )
    ]


if __name__ == "__main__":
    run_traced(__doc__, make_steps)
