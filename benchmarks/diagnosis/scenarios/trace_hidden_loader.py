# /// scenario
# healthy = true
# severities = [1.0, 2.0, 4.0]
# drawn = "traces"
# ///
"""The trace of a job whose own fetches are hidden behind the work of its GPU."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(fetch=3_000 * severity, workers=False, reads=0)])
