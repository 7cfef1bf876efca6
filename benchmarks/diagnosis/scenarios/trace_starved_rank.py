# /// scenario
# suspect = "data_pipeline"
# cause = "straggler"
# stage = "rank 1"
# fix = "make the slow rank as fast as the others"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The traces of three ranks, one of which waits for its batches: the others wait for it."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    late = 9_000 * severity
    return [
        Step(exchange=200, fetch=300 + late) if rank == 1 else Step(exchange=200, arrival=late)
        for rank in range(3)
    ]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(exchange=200)] * 3)
