"""Sentences about the incarnations of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.run import explain_incarnations
from stepscope.testing import RunBuilder

STEP = "forward 10 | backward 10 | optimizer 5"
STEPS = 40
FIGURES = "figures are of incarnation 2, with 40 steps, without those of others (1: 40 steps)."


@pytest.mark.parametrize(
    ("pause_steps", "world_size", "node", "is_restart"),
    [
        (0, 2, "b", False),
        (STEPS // 2 - 1, 2, "b", False),
        (STEPS // 2, 2, "b", True),  # clocks differ by less than that
        (STEPS + 1, 2, "b", True),
        (0, 2, "a", True),  # of one node the monitor knows whether both ran
        (0, 3, "b", True),
    ],
)
def test_a_rank_that_runs_on_two_nodes_is_not_called_a_restart(
    tmp_path: Path, pause_steps: int, world_size: int, node: str, is_restart: bool
) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0, node="a", world_size=2).draw(STEP, STEPS)
    later = run.rank(0, node=node, world_size=world_size, incarnation=2)
    later.pause(25 * pause_steps).draw(STEP, STEPS)
    expected = f"The job was restarted: {FIGURES}"
    if not is_restart:
        expected = (
            "Rank 0 ran at the same time on a (process 1000) and b (process 1100), which counts as "
            f"a restart: {FIGURES} Give each process a rank of its own."
        )
    assert explain_incarnations(run.open()) == expected
