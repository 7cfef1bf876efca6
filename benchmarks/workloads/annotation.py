"""Cost of one annotation pair in nanoseconds, with or without a run that is recorded.

Usage: annotation.py OUT.json
"""

import json
import sys
import timeit
from pathlib import Path

import stepscope

ROUNDS, REPEATS = 50_000, 9


def empty():
    pass


def annotated():
    with stepscope.annotate("forward"):
        pass


def main():
    pair = timeit.repeat(annotated, number=ROUNDS, repeat=REPEATS)
    call = timeit.repeat(empty, number=ROUNDS, repeat=REPEATS)
    costs = [(p - min(call)) / ROUNDS * 1e9 for p in pair]
    Path(sys.argv[1]).write_text(json.dumps(costs))


if __name__ == "__main__":
    main()
