"""Results that are stored with a run that has ended."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from stepscope.comparison import get_summary
from stepscope.diagnosis import Verdict, diagnose
from stepscope.run import open_run as open_run_model, recall
from stepscope.run.job import results
from stepscope.schema import JobState
from stepscope.server.tasks import PREPARED_VIEWS, prepare
from stepscope.server.worker import OpenRuns
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS
from tests.support.past_files import written_before

STEP = "wait 20 | forward 30 | backward 60 | optimizer 10"


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 200, jitter=0.1)
    run.rank(1).draw(STEP, 200, jitter=0.1, seed=1)
    return run


class Remembered:
    """A verdict that is recalled again and again, each time of the run as it is now."""

    def __init__(self, path: Path) -> None:
        self.path, self.made_count = written_before(path), 0

    def __call__(self) -> Verdict:
        run = open_run_model(self.path)

        def make() -> Verdict:
            self.made_count += 1
            return diagnose(run)

        return recall(run, "verdict", Verdict, make)


def test_a_verdict_is_made_once(run: RunBuilder) -> None:
    look = Remembered(run.write())
    assert look() == look() == diagnose(open_run_model(look.path))
    assert look.made_count == 1
    document = look.path / "results" / "verdict.json"
    for content in (b"", b"{}", document.read_bytes()[:-9], b"\xff"):
        document.write_bytes(content)
        assert look() == look()
    assert look.made_count == 5, "a damaged file is replaced"


@pytest.mark.parametrize("change", ["segment", "document", "corruption", "version", "switch"])
def test_a_verdict_of_another_state_is_made_again(
    run: RunBuilder, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.write()
    look = Remembered(path)
    before = look()
    segment, *_ = sorted((path / "tables" / "spans").rglob("*.parquet"))
    match change:
        case "segment":
            (segment.parent / "00000009-00000009.parquet").write_bytes(segment.read_bytes())
        case "document":
            (path / "nodes" / "n0" / "status.json").touch()
        case "corruption":
            segment.write_bytes(bytes(segment.stat().st_size))
            assert look().suspect == "insufficient_evidence" != before.suspect
        case "version":
            monkeypatch.setattr(results, "RESULTS_MAKER", "2")
        case _:
            monkeypatch.setenv(results.SWITCH, "0")
    look()
    assert look.made_count == (3 if change == "corruption" else 2), "damage is never stored"


def test_verdicts_are_stored_of_runs_that_have_ended(run: RunBuilder, tmp_path: Path) -> None:
    running = Remembered(run.status(JobState.IN_PROGRESS).write())
    assert running() == running()
    assert running.made_count == 2
    run.path = tmp_path / "ended"
    ended = Remembered(run.status(JobState.COMPLETED).write())
    (ended.path / "results").touch()  # nothing can be written into it
    assert ended() == ended()
    assert ended.made_count == 2
    (ended.path / "results").unlink()
    assert ended() == ended()
    assert ended.made_count == 3


def test_a_run_that_was_opened_before_its_job_ended_stores_nothing(run: RunBuilder) -> None:
    path = run.status(JobState.COMPLETED).write()
    opened = open_run_model(path)
    (path / "run.json").touch()  # as the last files of a job are written then
    assert recall(opened, "verdict", Verdict, lambda: diagnose(opened))
    assert not (path / "results").exists()
    look = Remembered(path)
    assert look() == look()
    assert look.made_count == 1


def test_the_views_of_a_run_that_is_opened_are_stored(
    run: RunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MIN_STORED_BYTES", 0)
    path = run.status(JobState.COMPLETED).write()
    names = {name for name, view in VIEWS.items() if not view.needs}
    written_before(path)
    get_summary(open_run_model(path))
    assert {file.stem for file in (path / "results").iterdir()} == {"summary", "verdict"}
    opened = OpenRuns()
    numbers = itertools.count()
    while not prepare(opened, location=str(path), revision=1, number=next(numbers)):
        pass
    assert next(numbers) == len(PREPARED_VIEWS) + 1  # the last is the summary
    assert set(PREPARED_VIEWS) <= {file.stem for file in (path / "results").iterdir()}
    stored = {name: VIEWS[name](open_run_model(path)) for name in names}
    assert names <= {file.stem for file in (path / "results").iterdir()}
    for name in names:
        assert encode(VIEWS[name](open_run_model(path))) == encode(stored[name]), name
    monkeypatch.setenv("STEPSCOPE_STORED_RESULTS", "0")
    opened = OpenRuns()
    assert prepare(opened, location=str(path), revision=1, number=0)
    for name in PREPARED_VIEWS:
        assert encode(VIEWS[name](opened.open(str(path), 1))) == encode(stored[name]), name
        opened.release_memory()


def encode(payload: msgspec.Struct) -> bytes:
    return msgspec.json.encode(payload)
