"""A job whose result is a number that depends on every step: `result <digest>` on stdout.

Usage: checked_steps.py [--count N] [--pause S] [--annotations N]

It ends with status 7.
"""

import argparse
import hashlib
import random
import sys
import time

import stepscope

EXIT_STATUS = 7


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.002)
    parser.add_argument("--annotations", type=int, default=0, help="annotations of each step")
    arguments = parser.parse_args()
    chance, digest = random.Random(0), hashlib.sha256()
    for number in range(arguments.count):
        for _ in range(arguments.annotations):
            with stepscope.annotate("draw"):
                digest.update(chance.randbytes(8))
        digest.update(chance.randbytes(8))
        time.sleep(arguments.pause)
        stepscope.scalar("loss", 1 / (1 + number))
        stepscope.step(number)
    print("result", digest.hexdigest(), flush=True)
    sys.exit(EXIT_STATUS)


if __name__ == "__main__":
    main()
