"""A job that writes the number of each step to a file of its own before it takes the step.

Usage: announced_steps.py FILE [--count N] [--pause S] [--wait-at N --wait-for FILE]
"""

import argparse
import os
import pathlib
import time

import stepscope


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.002)
    parser.add_argument("--wait-at", type=int, help="step before which the job waits for a file")
    parser.add_argument("--wait-for")
    arguments = parser.parse_args()
    descriptor = os.open(arguments.file, os.O_WRONLY | os.O_CREAT, 0o600)
    for number in range(arguments.count):
        while number == arguments.wait_at and not pathlib.Path(arguments.wait_for).exists():
            time.sleep(0.002)
        os.pwrite(descriptor, b"%12d" % (number + 1), 0)
        if arguments.pause:
            time.sleep(arguments.pause)
        stepscope.step(number)


if __name__ == "__main__":
    main()
