from __future__ import annotations

import pytest

from stepscope.store import layout
from stepscope.store.layout import Segment


def seg(first: int, last: int, node: str = "n") -> Segment:
    return Segment("spans", node, first, last)


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(segment.first, segment.last) for segment in segments]


def test_keys() -> None:
    assert layout.node_key("gpu-01.example") == "nodes/gpu-01.example/node.json"
    assert layout.status_key("gpu-01") == "nodes/gpu-01/status.json"
    assert layout.process_key("12-34-0") == "processes/12-34-0.json"
    assert layout.document_key("findings", "verdict") == "findings/verdict.json"
    assert seg(0, 15).key == "tables/spans/n/00000000-00000015.parquet"


@pytest.mark.parametrize("kind", ["nodes", "processes", "tables"])
def test_documents_stay_out_of_other_folders(kind: str) -> None:
    with pytest.raises(ValueError, match="no kind of document"):
        layout.document_key(kind, "x")


NAMES = ["a", "A", "a/b", "a%2Fb", ".a", "%2Ea", "..", "ü", "a b", "'", "a=b", "\ud800", "*", "\0"]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_can_be_turned_back(name: str) -> None:
    encoded = layout.file_name(name)
    assert layout.original_name(encoded) == name
    assert not encoded.startswith(".")
    assert "/" not in encoded


def test_file_names_never_collide() -> None:
    assert len({layout.file_name(name) for name in NAMES}) == len(NAMES)
    with pytest.raises(ValueError, match="empty"):
        layout.file_name("")


def test_a_segment_knows_its_key() -> None:
    for segment in (seg(0, 0), seg(16, 31, "a/ü"), seg(123456789, 123456789)):
        assert layout.segment_of(segment.key) == segment


@pytest.mark.parametrize(
    "key",
    [
        "run.json",
        "tables/spans/n/notes.txt",
        "tables/spans/n/1-2.parquet",
        "tables/spans/n/00000005-00000001.parquet",
        "tables/spans/n/00000000-00000000.parquet.tmp",
    ],
)
def test_other_keys_name_no_segment(key: str) -> None:
    assert layout.segment_of(key) is None


def test_a_covering_segment_hides_what_it_covers() -> None:
    files = [seg(0, 0), seg(1, 1), seg(0, 15), seg(15, 15), seg(16, 16)]
    assert ranges(layout.visible(files)) == [(0, 15), (16, 16)]
    assert ranges(layout.covered(files)) == [(0, 0), (1, 1), (15, 15)]


def test_covering_nests() -> None:
    files = [seg(16, 31), seg(0, 255), seg(17, 17), seg(256, 256)]
    assert ranges(layout.visible(files)) == [(0, 255), (256, 256)]


def test_nodes_do_not_cover_each_other() -> None:
    files = [seg(0, 15, "a"), seg(3, 3, "b")]
    assert layout.visible(files) == files


def test_gaps() -> None:
    assert ranges(layout.gaps([seg(0, 15), seg(16, 16)])) == []
    assert ranges(layout.gaps([seg(2, 2), seg(5, 5)])) == [(0, 1), (3, 4)]
    assert layout.gaps([seg(0, 0, "a"), seg(1, 1, "b")]) == [seg(0, 0, "b")]


def test_sixteen_merge_into_one() -> None:
    (merge,) = layout.merges([seg(i, i) for i in range(20)])
    assert merge.target == seg(0, 15)
    assert ranges(list(merge.members)) == [(i, i) for i in range(16)]


def test_a_group_with_a_hole_stays_and_its_neighbours_merge() -> None:
    files = [seg(i, i) for i in range(40) if i != 5]
    assert [merge.target for merge in layout.merges(files)] == [seg(16, 31)]


def test_ten_hours_of_flushes_keep_few_segments() -> None:
    segments: list[Segment] = []
    most = 0
    for number in range(10 * 3600 // 5):
        segments.append(seg(number, number))
        while merges := layout.merges(segments):
            for merge in merges:
                segments = [s for s in segments if s not in merge.members] + [merge.target]
        most = max(most, len(segments))
        assert not layout.gaps(segments[:0])
    assert layout.gaps(segments) == []
    assert most < 60
