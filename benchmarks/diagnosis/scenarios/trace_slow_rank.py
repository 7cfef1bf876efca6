# /// scenario
# suspect = "model"
# cause = "straggler"
# stage = "rank 2"
# fix = "make the slow rank as fast as the others: spread the work evenly"
# severities = [1.0, 1.5, 2.0]
# drawn = "traces"
# ///
"""The traces of four ranks, one of which computes more slowly: the others wait for it."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [
        Step(exchange=200, kernel=300 * (1 + 0.5 * severity))
        if rank == 2
        else Step(exchange=200, arrival=24 * 3 * 150 * severity)
        for rank in range(4)
    ]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(exchange=200)] * 4)
