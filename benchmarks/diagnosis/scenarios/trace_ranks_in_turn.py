# /// scenario
# suspect = "model"
# cause = "uneven_ranks"
# stage = "ranks"
# fix = "give all ranks inputs of the same size"
# severities = [1.0, 1.5, 2.0]
# drawn = "traces"
# ///
"""The traces of two ranks with inputs of different length: each is the slower one in turn."""

from drawn import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks, which alternate."""
    longer = 300 * 0.75 * severity
    slow = Step(exchange=200, kernel=300 + longer)
    fast = Step(exchange=200, arrival=slow.layers * 3 * longer)
    return [[slow, fast], [fast, slow]]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, [Step(exchange=200)] * 2)
