"""Rounds of a row: all subjects once each, in random order, beside a watch on the machine."""

from __future__ import annotations

import math
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.measuring import Quartiles, children_cpu_s, quartiles

Subject = Callable[[], float]
"""A measurement; its figure is in the unit of the row."""
MAX_OUTSIDE_CORES = 0.1
MIN_QUIET_ROUNDS = 3


class Usage(NamedTuple):
    """Time, and the CPU time used until then."""

    time_s: float
    machine_cpu_s: float | None
    """By all processes; None where the system does not tell."""
    measured_cpu_s: float
    """By this process and the commands that it has run."""


class Round(msgspec.Struct):
    """Figures of one round."""

    order: list[str]
    values: dict[str, float]
    """By subject."""
    outside_cores: float | None
    """Cores that processes outside the measured commands used meanwhile."""

    @property
    def is_disturbed(self) -> bool:
        """Return whether other work ran meanwhile."""
        return self.outside_cores is not None and self.outside_cores > MAX_OUTSIDE_CORES


class Measured(msgspec.Struct):
    """Rounds of a row."""

    rounds: list[Round]
    failures: dict[str, str]
    """Sentences by subject."""

    @property
    def counted(self) -> list[Round]:
        """Return the rounds that count."""
        quiet = [one for one in self.rounds if not one.is_disturbed]
        return quiet if len(quiet) >= MIN_QUIET_ROUNDS else self.rounds

    def values(self, subject: str) -> Quartiles | None:
        """Compute the spread of the figures of a subject."""
        return _spread(one.values.get(subject) for one in self.counted)

    def ratios(self, subject: str, yardstick: str) -> Quartiles | None:
        """Compute the spread of the ratio to the yardstick of the same round."""
        return _spread(
            one.values[subject] / one.values[yardstick]
            for one in self.counted
            if subject in one.values and one.values.get(yardstick)
        )

    def exponents(self, sizes: Mapping[str, float]) -> Quartiles | None:
        """Compute the spread of the power of the size with which the figure grows in a round.

        Between neighbouring sizes, the largest counts: a cost that bends upwards is not averaged.
        """
        return _spread(
            max(
                math.log(one.values[large] / one.values[small])
                / math.log(sizes[large] / sizes[small])
                for small, large in pairwise(sizes)
            )
            for one in self.counted
            if all(one.values.get(size, 0) > 0 for size in sizes)
        )


def _spread(values: Iterator[float | None]) -> Quartiles | None:
    measured = [value for value in values if value is not None]
    return quartiles(measured) if measured else None


def read_usage() -> Usage:
    """Read the CPU time used by the machine, on Linux, and by this process and its commands."""
    process = resource.getrusage(resource.RUSAGE_SELF)
    measured_cpu_s = process.ru_utime + process.ru_stime + children_cpu_s()
    machine_cpu_s = None
    if sys.platform == "linux":
        user, nice, system, _, _, irq, soft_irq = map(int, read_cpu_line()[1:8])
        machine_cpu_s = (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")
    return Usage(time.monotonic(), machine_cpu_s, measured_cpu_s)


def read_cpu_line() -> list[str]:
    """Read the line of /proc/stat that counts all cores."""
    return Path("/proc/stat").read_text().partition("\n")[0].split()


def measure_rounds(
    subjects: Mapping[str, Subject],
    count: int,
    *,
    warm_up: bool,
    shuffle: Callable[[list[str]], None] = random.shuffle,
    read: Callable[[], Usage] = read_usage,
) -> Iterator[Measured]:
    """Measure subjects in rounds, and yield what is measured after each of them.

    Args:
        subjects: measurements by name.
        count: number of rounds.
        warm_up: whether each subject runs once before, unmeasured.
        shuffle: puts names into another order.
        read: reads the use of the machine.
    """
    failures: dict[str, str] = {}
    rounds: list[Round] = []
    if warm_up:
        _run(subjects, list(subjects), failures)
    for _ in range(count):
        order = [name for name in subjects if name not in failures]
        shuffle(order)
        before = read()
        values = _run(subjects, order, failures)
        rounds.append(Round(order, values, _outside_cores(before, read())))
        yield Measured(rounds, failures)


def _run(
    subjects: Mapping[str, Subject], order: Sequence[str], failures: dict[str, str]
) -> dict[str, float]:
    """Run subjects; one that fails gets a sentence and does not run again."""
    values = {}
    for name in order:
        try:
            values[name] = subjects[name]()
        except Exception as error:  # noqa: BLE001  # of a peer, whatever it is
            failures[name] = str(error) or type(error).__name__
    return values


def _outside_cores(before: Usage, after: Usage) -> float | None:
    if before.machine_cpu_s is None or after.machine_cpu_s is None:
        return None
    machine_s = after.machine_cpu_s - before.machine_cpu_s
    measured_s = after.measured_cpu_s - before.measured_cpu_s
    return max(0.0, machine_s - measured_s) / (after.time_s - before.time_s)
