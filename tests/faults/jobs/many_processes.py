"""A job of many processes, each of which records spans as fast as it can: `recorded N rate R`.

Usage: many_processes.py [--processes N] [--parallel N] [--spans N] [--same-pid]

Span number k of process p has the value p * SPANS + k. With --same-pid every process has the pid of
the first one, as when pids wrap around; that takes the rights of root.
"""

import argparse
import gc
import os
import pathlib
import time

import stepscope

LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--spans", type=int, default=1)
    parser.add_argument("--same-pid", action="store_true")
    arguments = parser.parse_args()
    start, running, pid = time.perf_counter(), set(), None
    for number in range(arguments.processes):
        if len(running) == arguments.parallel:
            ended, status = os.wait()
            assert status == 0
            running.remove(ended)
        only_pid = pid if arguments.same_pid else None
        pid = _start(number * arguments.spans, arguments.spans, only_pid)
        running.add(pid)
    for _ in running:
        assert os.wait()[1] == 0
    span_count = arguments.processes * arguments.spans
    print("recorded", span_count, "rate", span_count / (time.perf_counter() - start), flush=True)


def _start(first, count, wanted_pid):
    while True:
        if wanted_pid is not None:
            LAST_PID.write_text(str(wanted_pid - 1), encoding="ascii")
        pid = os.fork()
        if pid == 0:
            if wanted_pid in (None, os.getpid()):
                _record(first, count)
            os._exit(0)
        if wanted_pid in (None, pid):
            return pid
        os.waitpid(pid, 0)  # another process was faster


def _record(first, count):
    gc.disable()  # collections are recorded, too
    for number in range(first, first + count):
        stepscope.step(number)


if __name__ == "__main__":
    main()
