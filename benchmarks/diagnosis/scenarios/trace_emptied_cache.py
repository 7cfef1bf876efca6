# /// scenario
# suspect = "framework_overhead"
# cause = "memory_allocation"
# stage = "allocating"
# fix = "let the allocator keep its memory: empty_cache"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job that empties the allocator's cache, so that every layer allocates."""

from drawn import Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(allocations=24, allocation=250 * severity)])
