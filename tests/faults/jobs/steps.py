"""A job that reports every step after it is recorded: `done N` on stdout.

Usage: steps.py [--count N] [--ignore-stop] [--child]
"""

import argparse
import signal
import subprocess
import sys
import time

import stepscope


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--on-stop", choices=["die", "exit-0"], default="die")
    parser.add_argument("--child", action="store_true", help="run the steps in a child process")
    arguments = parser.parse_args()
    if arguments.child:
        command = [sys.executable, __file__, "--count", str(arguments.count)]
        sys.exit(subprocess.run(command).returncode)
    if arguments.on_stop == "exit-0":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    for number in range(arguments.count):
        with stepscope.annotate("work"):
            time.sleep(0.002)
        stepscope.step(number)
        print(f"done {number}", flush=True)


if __name__ == "__main__":
    main()
