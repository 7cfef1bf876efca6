"""What is read ahead need not be read when somebody looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.run import Run
from stepscope.store import RunReader, open_run
from stepscope.timeline.trace import timelines_of
from tests.support.drawn_timelines import cut_small, recorded, view
from tests.support.kineto_files import kernel, launch, op


def test_a_wide_window_of_a_run_that_was_read_ahead_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [op("first", 0, 10)]
    for at in range(0, 1_000_000, 1_000):
        events += [launch(at, 5, at + 1), kernel(at + 20, 30, at + 1)]
    with cut_small(levels=True, slice_rows=10**6):
        recorded(tmp_path / "run", events)

    def looked_at(run: Run) -> list[Any]:
        view(run, "timeline")
        asked.clear()
        return [view(run, f"timeline-{what}", pixels=100) for what in ("slices", "counters")]

    asked: list[str] = []
    read = RunReader._run
    monkeypatch.setattr(
        RunReader, "_run", lambda self, *given: [asked.append(str(given[0])), read(self, *given)][1]
    )
    cold = looked_at(Run(open_run(tmp_path / "run")))
    assert asked
    run = Run(open_run(tmp_path / "run"))
    assert timelines_of(run).read_ahead(60)
    assert looked_at(run) == cold
    assert set(asked) <= {"['tracks']"}, "names of tracks, and no event"
