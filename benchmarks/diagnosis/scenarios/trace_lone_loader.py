# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# stage = "fetching"
# fix = "prepare batches in worker processes: num_workers"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose training process makes its batches itself."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(fetch=9_000 * severity, workers=False)])
