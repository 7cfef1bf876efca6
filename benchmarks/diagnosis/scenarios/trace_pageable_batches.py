# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# stage = "copies"
# fix = "pin and overlap the copies: pin_memory and non_blocking"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that copies its batches from pageable memory."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(copy=9_000 * severity, memory="Pageable")]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
