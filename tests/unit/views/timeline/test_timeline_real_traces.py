"""Real recordings, where they are at hand: everything in the file is on the timeline once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drawn_timelines import track_ids, tracks_in, view

from stepscope.diagnosis import Signals
from stepscope.diagnosis.timeline_blocks import EVENT_TABLES

FILES = (
    "ddp_2ranks_memory.v100.json.gz",
    "resnet_checkpointing_8ranks.mi300x.json.gz",
    "bert_small.h100.json.gz",
    "cpu_only.json.gz",
)


@pytest.mark.parametrize("file", FILES)
def test_every_event_is_drawn_once_at_every_zoom(real: Callable[[str], Signals], file: str) -> None:
    signals = real(file)
    rows = sum(signals.reader.row_count(table) for table in EVENT_TABLES)
    tree = tracks_in(view(signals, "timeline").groups)
    assert sum(track.event_count or 0 for track in tree) == rows
    for pixels in (10, 300, 1_500, 100_000):
        payload = view(signals, "timeline-slices", pixels=pixels)
        assert sum(sum(track.count) for track in payload.tracks) == rows
        counts = {track.id: track.row_count for track in tree}
        assert all(track.row_count <= counts[track.track] for track in payload.tracks)
    whole = view(signals, "timeline-summary", top=0)
    assert sum(track.event_count for track in whole.tracks) == rows
    flame = view(signals, "timeline-flame")
    assert flame.total_ns >= max(track.busy_ns for track in whole.tracks)


def test_steps_and_their_device_work(real: Callable[[str], Signals]) -> None:
    signals = real("resnet50_num_workers_0.v100.json.gz")
    payload = view(signals, "timeline")
    (steps,) = payload.steps
    assert len(steps.numbers) == len(set(steps.numbers)) > 1
    found = view(signals, "timeline-search", name="ProfilerStep#", top=0)
    marks = {match.after_ns for match in found.matches if match.track.startswith("trace")}
    assert set(steps.after_ns) <= marks
    first, last = steps.after_ns[0], steps.after_ns[0] + steps.duration_ns[0]
    ids = track_ids(signals)
    slices = view(signals, "timeline-slices", tracks=ids["device"], from_ns=first, to_ns=last)
    assert slices.tracks[0].count
