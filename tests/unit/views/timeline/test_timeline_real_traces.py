"""Real traces, if available: every event of the file is on the timeline once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.analysis import is_time_mark
from stepscope.run import EVENT_TABLES, Run
from tests.support.drawn_timelines import track_ids, tracks_in, view

FILES = (
    "ddp_2ranks_memory.v100.json.gz",
    "resnet_checkpointing_8ranks.mi300x.json.gz",
    "bert_small.h100.json.gz",
    "cpu_only.json.gz",
)


@pytest.mark.parametrize("file", FILES)
def test_every_event_is_drawn_once_at_every_zoom(real: Callable[[str], Run], file: str) -> None:
    run = real(file)
    rows = sum(run.reader.row_count(table) for table in EVENT_TABLES)
    tree = tracks_in(view(run, "timeline").groups)
    assert sum(track.event_count or 0 for track in tree) == rows
    # The mark at which the recording was closed is not within the extent of the run.
    after = run.reader.sql(
        f"SELECT count(*) AS n FROM other_events WHERE start_ns > {run.clock.end_ns}"  # noqa: S608
    )["n"][0]
    for pixels in (10, 300, 1_500, 100_000):
        payload = view(run, "timeline-slices", pixels=pixels)
        assert rows - sum(sum(track.count) for track in payload.tracks) in {0, after}
        counts = {track.id: track.row_count for track in tree}
        assert all(track.row_count <= counts[track.track] for track in payload.tracks)
    summary = view(run, "timeline-summary", top=0)
    names = run.reader.sql(" UNION ALL ".join(f"SELECT name FROM {t}" for t in EVENT_TABLES))  # noqa: S608
    marks = sum(map(is_time_mark, filter(None, names["name"].tolist())))
    assert sum(track.event_count for track in summary.tracks) == rows - marks
    flame = view(run, "timeline-flame")
    assert flame.total_ns >= max(track.busy_ns for track in summary.tracks)


def test_steps_and_their_device_work(real: Callable[[str], Run]) -> None:
    run = real("resnet50_num_workers_0.v100.json.gz")
    payload = view(run, "timeline")
    (steps,) = payload.steps
    assert len(steps.numbers) == len(set(steps.numbers)) > 1
    matches = view(run, "timeline-search", name="ProfilerStep#", top=0)
    marks = {match.after_ns for match in matches.matches if match.track.startswith("trace")}
    assert set(steps.after_ns) <= marks
    first, last = steps.after_ns[0], steps.after_ns[0] + steps.duration_ns[0]
    ids = track_ids(run)
    slices = view(run, "timeline-slices", tracks=ids["device"], from_ns=first, to_ns=last)
    assert slices.tracks[0].count
