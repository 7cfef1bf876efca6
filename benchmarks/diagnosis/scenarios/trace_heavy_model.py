# /// scenario
# suspect = "model"
# cause = "compute"
# accept = ["healthy/none"]
# stage = "computation"
# fix = "make the arithmetic cheaper"
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a large model that keeps its GPU busy."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(layers=48, kernel=3_000 * severity)])
