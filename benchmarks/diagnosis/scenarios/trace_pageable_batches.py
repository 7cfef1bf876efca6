# /// scenario
# suspect = "data_pipeline"
# cause = "host_to_device_copies"
# stage = "copies"
# fix = "pin and overlap the copies: pin_memory and non_blocking"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job that copies its batches from pageable memory."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(copy=9_000 * severity, memory="Pageable")])
