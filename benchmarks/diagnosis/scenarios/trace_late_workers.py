# /// scenario
# suspect = "data_pipeline"
# cause = "slow_dataset"
# stage = "fetching"
# fix = ""
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose workers are late; it cannot show what they do."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(fetch=9_000 * severity)])
