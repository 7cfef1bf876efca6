"""A job that takes steps while it has no descriptor left, and then some with descriptors.

Usage: exhausted_descriptors.py BEFORE WITHOUT AFTER

It takes so many steps before, without and after. Its result is the number of them: `done N`.
"""

import os
import resource
import sys

import stepscope

LIMIT = 64


def main():
    counts = [int(text) for text in sys.argv[1:]]
    numbers = iter(range(sum(counts)))
    _take(counts[0], numbers)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    descriptors = []
    try:
        while True:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    _take(counts[1], numbers)
    for descriptor in descriptors:
        os.close(descriptor)
    _take(counts[2], numbers)
    print("done", sum(counts), flush=True)


def _take(count, numbers):
    for _ in range(count):
        stepscope.step(next(numbers))


if __name__ == "__main__":
    main()
