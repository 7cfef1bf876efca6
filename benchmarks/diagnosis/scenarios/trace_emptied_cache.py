# /// scenario
# suspect = "framework_overhead"
# cause = "memory_allocation"
# stage = "allocating"
# fix = "let the allocator keep its memory: empty_cache"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job that empties the allocator's cache, so that every layer allocates."""

from traced import Step, run_traced


def make_steps(severity):
    """Make the steps of the ranks."""
    return [Step(allocations=24, allocation=250 * severity)]


if __name__ == "__main__":
    run_traced(__doc__, make_steps, lambda severity: [Step()])
