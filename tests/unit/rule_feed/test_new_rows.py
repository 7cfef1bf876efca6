"""Each row of tensors and scalars reaches the rules once, however late it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepscope.rule_feed.new_rows import NewRows
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.tensor_rows import add_tensors

STEPS = 30


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_written_late_are_returned_once(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    builder = RunBuilder(tmp_path / "run")
    process = builder.rank(0)
    process.draw("forward 12 | backward 20 | optimizer 8", 20)
    run = builder.write()
    rows = [
        {"tensor": name, "log": log, "step": step, "seq": step}
        for name, log in (("a", "7r"), ("b", "8r"))
        for step in range(STEPS)
    ]
    # The end of the time that is evaluated moves on; a row is written up to ten steps later, but
    # not before the previous one of its log.
    delays = random.integers(0, 10, (2, STEPS))
    written = np.maximum.accumulate(np.arange(STEPS) + delays, axis=1).ravel().tolist()
    new_rows = NewRows()
    returned: list[tuple[str, int]] = []
    for now in range(4, STEPS + 12, 4):
        batch = [row for row, at in zip(rows, written, strict=True) if now - 4 <= at < now]
        if batch:
            add_tensors(run, process.info.process, batch)
        final = now >= STEPS + 8
        period = Run(open_run(run)).between(EPOCH_NS, EPOCH_NS + now * 10**9)
        for series in new_rows.tensors(period, final=final):
            assert final or series.t_ns.max() < EPOCH_NS + now * 10**9
            returned += [(series.name, step) for step in series.step.tolist()]
    assert sorted(returned) == sorted((row["tensor"], row["step"]) for row in rows)
    assert new_rows.tensors(Run(open_run(run)), final=True) == []
