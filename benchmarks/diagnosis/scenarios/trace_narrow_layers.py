# /// scenario
# suspect = "framework_overhead"
# cause = "tiny_operators"
# stage = "calling"
# fix = "let a compiler fuse the operators: torch.compile"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a deep and narrow model: its kernels are shorter than their launch."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(layers=200, kernel=9 / severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step(layers=20, kernel=100 / severity)])
