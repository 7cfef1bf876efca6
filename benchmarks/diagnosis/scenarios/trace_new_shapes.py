# /// scenario
# suspect = "framework_overhead"
# cause = "recompilation"
# stage = "compiling"
# fix = "compile once for dynamic shapes: dynamic=True"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that compiles for a new shape in every step."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(compiling=12_000 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
