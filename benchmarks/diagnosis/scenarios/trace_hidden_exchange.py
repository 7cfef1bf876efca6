# /// scenario
# healthy = true
# severities = [0.5, 1.0, 2.0]
# drawn = "traces"
# ///
"""The traces of two ranks whose exchange of gradients is hidden."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(exchange=1_000 * severity)] * 2)
