# /// scenario
# suspect = "model"
# cause = "low_occupancy"
# stage = "computation"
# fix = "give each operator more to do: a larger batch"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job whose batch is too small for the multiprocessors of its GPU."""

from drawn import Step, run_traced

if __name__ == "__main__":
    fixed = [Step(kernel=100)]
    run_traced(__doc__, lambda severity: [Step(blocks=0.3 / severity, kernel=600)], fixed)
