"""Levels of the monitor, with a clock of the test and a model of what each level costs."""

from __future__ import annotations

import pytest

from stepscope.monitor.sampling import MAX_ROOM_PERIODS, MIN_ROOM_PERIODS, PERIOD_NS, Throttle

S = 1_000_000_000
INTERVAL_NS = 500_000_000
BUDGET = 0.02


class Simulation:
    """A monitor whose CPU time per sample, per second and per optional source is given."""

    def __init__(self, groups: tuple[str, ...] = ("cpu", "threads", "processes")) -> None:
        self.throttle = Throttle(
            BUDGET, interval_ns=INTERVAL_NS, flush_s=5, groups=groups, now_ns=0, cpu_ns=0
        )
        self.now_ns = 0
        self.cpu_ns = 0.0
        self.base_ratio = 0.0
        self.tick_s = 0.0
        self.source_s: dict[str, float] = {}
        self.changes = 0

    @property
    def ratio(self) -> float:
        """CPU time of the present level as a share of a core."""
        omitted = self.throttle.level.omitted
        sources = sum(cost for group, cost in self.source_s.items() if group not in omitted)
        return self.base_ratio + (self.tick_s + sources) * S / self.throttle.interval_ns

    def run(self, periods: int) -> None:
        """Let time pass, sample by sample."""
        end_ns = self.now_ns + periods * PERIOD_NS
        while self.now_ns < end_ns:
            level = self.throttle.level
            self.now_ns += self.throttle.interval_ns
            self.cpu_ns += self.ratio * self.throttle.interval_ns
            self.throttle.update(self.now_ns, round(self.cpu_ns), self.now_ns)
            self.changes += self.throttle.level != level


def test_neither_the_start_nor_rare_bursts_nor_a_load_at_the_edge_change_the_level() -> None:
    """A merge of files every five minutes takes a period above the budget."""
    for share in (0.5, 0.8, 0.9, 0.99, 1.01, 1.2, 1.5, 1.9):
        simulation = Simulation()
        simulation.base_ratio = 1.0  # of the start
        simulation.run(1)
        simulation.base_ratio = 0.0
        simulation.tick_s = share * BUDGET * INTERVAL_NS / S
        simulation.run(200)
        assert simulation.changes == (share > 1)
        assert bool(simulation.throttle.notes) == (share > 1)
    simulation = Simulation()
    for _ in range(40):
        simulation.base_ratio = 1.5 * BUDGET
        simulation.run(1)
        simulation.base_ratio = 0.3 * BUDGET
        simulation.run(14)
    assert simulation.changes == 0
    assert simulation.throttle.interval_ns == INTERVAL_NS


@pytest.mark.parametrize(
    ("multiple", "factor", "omitted"),
    [
        (1.5, 2, ()),
        (3, 4, ()),
        (7, 8, ()),
        (12, 8, ("threads",)),
        (40, 8, ("threads", "processes")),
    ],
)
def test_first_fewer_samples_then_fewer_sources(
    multiple: float, factor: int, omitted: tuple[str, ...]
) -> None:
    """Threads and processes take 40% and 55% of the cost of a sample, so eight times fewer samples
    without threads cost 0.6 / 8 as much, without both 0.05 / 8."""
    simulation = Simulation()
    cost_s = multiple * BUDGET * INTERVAL_NS / S
    simulation.tick_s = 0.05 * cost_s
    simulation.source_s = {"threads": 0.4 * cost_s, "processes": 0.55 * cost_s}
    simulation.run(8)
    assert simulation.throttle.level == (factor, omitted)
    assert simulation.ratio <= BUDGET
    (note,) = simulation.throttle.notes
    assert note.startswith("the monitor has recorded less since 60 s after the start of the job (")
    assert f"a sample every {factor / 2:g} s instead of 500 ms" in note.replace("00 s", " s")
    assert ("no threads of processes" in note) == ("threads" in omitted)
    assert "to keep its budget of 2.0% of a core" in note


def test_it_returns_when_there_is_room_and_says_from_when_to_when() -> None:
    simulation = Simulation()
    simulation.tick_s = 3 * BUDGET * INTERVAL_NS / S
    simulation.run(8)
    simulation.tick_s /= 100
    simulation.run(2 * MIN_ROOM_PERIODS + 1)
    assert simulation.throttle.interval_ns == INTERVAL_NS
    (note,) = simulation.throttle.notes
    assert note.startswith("the monitor recorded less between 60 s and ")
    assert "(down to a sample every 2 s instead of 500 ms, the run written every 20 s" in note


def test_a_level_that_costs_too_much_is_tried_less_and_less_often() -> None:
    """Without threads there is room for much more, with them there is not."""
    simulation = Simulation()
    simulation.source_s = {"threads": 20 * BUDGET * INTERVAL_NS / S}
    simulation.run(10)
    changes = simulation.changes
    day = 24 * 3600 * S // PERIOD_NS
    simulation.run(day)
    # Waits of 3, 6, 12, … periods up to an hour, and a return after each.
    doublings = (MAX_ROOM_PERIODS // MIN_ROOM_PERIODS).bit_length()
    assert simulation.changes - changes <= 2 * (doublings + day // MAX_ROOM_PERIODS)
    over_periods = 2 * (simulation.changes // 2)
    assert over_periods * PERIOD_NS / simulation.now_ns < 0.015  # two periods of most hours


def test_after_a_lasting_return_it_waits_no_longer_than_at_first() -> None:
    simulation = Simulation()
    for _ in range(6):
        simulation.base_ratio = 1.5 * BUDGET
        simulation.run(3)
        simulation.base_ratio = 0.1 * BUDGET
        simulation.run(10 * MIN_ROOM_PERIODS)
        assert simulation.throttle.level.factor == 1


def test_a_base_above_the_budget_is_said() -> None:
    simulation = Simulation()
    simulation.base_ratio = 2 * BUDGET
    simulation.run(1000)
    assert simulation.changes == 5
    _, note = simulation.throttle.notes
    assert note == (
        "the monitor takes 4.0% of a core although it records as little as it can; its budget of "
        "2.0% of a core cannot be kept"
    )


def test_the_monitor_that_replaces_another_one_continues_at_its_level() -> None:
    simulation = Simulation()
    simulation.source_s = {"threads": 20 * BUDGET * INTERVAL_NS / S}
    simulation.run(8)
    assert simulation.throttle.level.omitted == ("threads",)
    successor = Simulation().throttle
    successor.resume(simulation.throttle.reduction)
    assert successor.level == simulation.throttle.level
    assert successor.notes == simulation.throttle.notes
    without_threads = Simulation(groups=("cpu",)).throttle
    without_threads.resume(simulation.throttle.reduction)
    assert without_threads.level == (8, ())


def test_a_configured_interval_keeps_the_level() -> None:
    simulation = Simulation()
    simulation.tick_s = 1.5 * BUDGET * INTERVAL_NS / S
    simulation.run(4)
    assert simulation.throttle.level.factor == 2
    simulation.throttle.configure(100_000_000)
    assert simulation.throttle.interval_ns == 200_000_000
    simulation.throttle.configure(60 * S)  # has no level with fewer samples
    assert simulation.throttle.level == (1, ())
    assert simulation.throttle.interval_ns == 60 * S
