"""Trainings with DataLoader workers, simulated batch by batch, and drawn as runs."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS

MS = 1_000_000
HANDLING_MS = 0.2
"""Time to receive a batch, ready or late: that of the graph where it knows none."""
PREFETCH = 2


class Loader(NamedTuple):
    """Training with a loader; times are milliseconds."""

    fetch: float
    compute: float
    workers: int
    save: float = 0.0
    """Checkpoint after each tenth step."""
    boot: float = 0.0
    """Start of an iteration, and as long again until the workers fetch."""
    per_iteration: int = 1000
    """Batches of an iteration."""
    steps: int = 60


class Simulated(NamedTuple):
    """Times of a simulated training."""

    requests: list[float]
    received: list[float]
    ends: list[float]
    """Ends of steps."""
    fetches: list[float]
    """Starts of fetches."""
    starts: list[float]
    """Starts of iterations."""

    @property
    def step_ms(self) -> float:
        """Mean measured step."""
        warm_up = len(self.ends) // 10
        return (self.ends[-1] - self.ends[warm_up - 1]) / (len(self.ends) - warm_up)


def simulate_training(loader: Loader) -> Simulated:
    """Simulate batches one by one: a worker fetches after its batch before, and after the one that
    is as many before it as the loader asks for ahead."""
    simulated = Simulated([], [], [], [], [])
    now, ahead = 0.0, PREFETCH * loader.workers
    for step in range(loader.steps):
        number = step % loader.per_iteration
        if not number:
            simulated.starts.append(now)
            booted = now + 2 * loader.boot
            now += loader.boot
        start = booted if number < ahead else simulated.received[step - ahead]
        if number >= loader.workers:
            start = max(start, simulated.fetches[step - loader.workers] + loader.fetch)
        simulated.fetches.append(start)
        simulated.requests.append(now)
        now = max(now, start + loader.fetch) + HANDLING_MS
        simulated.received.append(now)
        now += loader.compute + loader.save * (step % 10 == 9)
        simulated.ends.append(now)
    return simulated


def draw_loader(run: RunBuilder, loader: Loader) -> RunBuilder:
    """Draw the same training."""
    simulated = simulate_training(loader)
    rank = run.rank(workers=loader.workers)
    for step in range(loader.steps):
        if not step % loader.per_iteration:
            rank.draw(f"start=1 {loader.boot}")
        wait_ms = simulated.received[step] - simulated.requests[step]
        is_late = simulated.fetches[step] + loader.fetch > simulated.requests[step]
        rank.draw(f"wait={int(not is_late)} {wait_ms:.6f} | forward {loader.compute - 1}")
        if loader.save and step % 10 == 9:
            rank.draw(f"save {loader.save}")
        rank.draw("optimizer 1")
    for step, start in enumerate(simulated.fetches):
        worker = rank.workers[step % loader.per_iteration % loader.workers]
        worker.now = EPOCH_NS + round(start * MS)
        worker.draw(f"fetch {loader.fetch}")
    return run
