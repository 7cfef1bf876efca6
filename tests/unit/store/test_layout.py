from __future__ import annotations

import pytest

from stepscope.store import layout
from stepscope.store.layout import Segment


def make_segment(first: int, last: int, node: str = "n") -> Segment:
    return Segment("spans", node, first, last)


def ranges(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(segment.first, segment.last) for segment in segments]


def test_keys() -> None:
    assert layout.node_key("gpu-01.example") == "nodes/gpu-01.example/node.json"
    assert layout.status_key("gpu-01") == "nodes/gpu-01/status.json"
    assert layout.process_key("12-34-0") == "processes/12-34-0.json"
    assert layout.document_key("findings", "verdict") == "findings/verdict.json"
    assert make_segment(0, 15).key == "tables/spans/n/00000000-00000015.parquet"


@pytest.mark.parametrize("kind", ["nodes", "processes", "tables"])
def test_documents_stay_out_of_other_folders(kind: str) -> None:
    with pytest.raises(ValueError, match="not a kind of document"):
        layout.document_key(kind, "x")


NAMES = ["a", "A", "a/b", "a%2Fb", ".a", "%2Ea", "..", "ü", "a b", "'", "a=b", "\ud800", "*", "\0"]


@pytest.mark.parametrize("name", NAMES)
def test_file_names_can_be_decoded(name: str) -> None:
    encoded = layout.encode_file_name(name)
    assert layout.decode_file_name(encoded) == name
    assert not encoded.startswith(".")
    assert "/" not in encoded


def test_file_names_never_collide() -> None:
    assert len({layout.encode_file_name(name) for name in NAMES}) == len(NAMES)
    with pytest.raises(ValueError, match="empty"):
        layout.encode_file_name("")


def test_segment_keys_round_trip() -> None:
    for segment in (
        make_segment(0, 0),
        make_segment(16, 31, "a/ü"),
        make_segment(123456789, 123456789),
        Segment("spans", "n", 0, 15, coarseness=2),
    ):
        assert layout.parse_segment(segment.key) == segment


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
def test_other_keys_are_not_segments(key: str) -> None:
    assert layout.parse_segment(key) is None


def test_a_covering_segment_hides_what_it_covers() -> None:
    files = [
        make_segment(0, 0),
        make_segment(1, 1),
        make_segment(0, 15),
        make_segment(15, 15),
        make_segment(16, 16),
    ]
    assert ranges(layout.select_visible(files)) == [(0, 15), (16, 16)]
    assert ranges(layout.find_covered(files)) == [(0, 0), (1, 1), (15, 15)]


def test_covering_nests() -> None:
    files = [
        make_segment(16, 31),
        make_segment(0, 255),
        make_segment(17, 17),
        make_segment(256, 256),
    ]
    assert ranges(layout.select_visible(files)) == [(0, 255), (256, 256)]


def test_nodes_do_not_cover_each_other() -> None:
    files = [make_segment(0, 15, "a"), make_segment(3, 3, "b")]
    assert layout.select_visible(files) == files


def test_gaps() -> None:
    assert ranges(layout.find_gaps([make_segment(0, 15), make_segment(16, 16)])) == []
    assert ranges(layout.find_gaps([make_segment(2, 2), make_segment(5, 5)])) == [(0, 1), (3, 4)]
    assert layout.find_gaps([make_segment(0, 0, "a"), make_segment(1, 1, "b")]) == [
        make_segment(0, 0, "b")
    ]


def test_sixteen_merge_into_one() -> None:
    (merge,) = layout.plan_merges([make_segment(i, i) for i in range(20)])
    assert merge.target == make_segment(0, 15)
    assert ranges(list(merge.sources)) == [(i, i) for i in range(16)]


def test_a_coarser_segment_hides_the_finer_one_of_its_range() -> None:
    files = [make_segment(0, 15), Segment("spans", "n", 0, 15, 1), Segment("spans", "n", 0, 15, 2)]
    assert layout.select_visible(files) == files[2:]
    assert layout.find_covered(files) == files[:2]


def test_only_equally_coarse_segments_merge() -> None:
    files = [Segment("spans", "n", 16 * i, 16 * i + 15, int(i < 15)) for i in range(16)]
    assert layout.plan_merges(files) == []
    files[15] = Segment("spans", "n", 240, 255, 1)
    (merge,) = layout.plan_merges(files)
    assert merge.target == Segment("spans", "n", 0, 255, 1)


def test_a_group_with_a_gap_stays_and_its_neighbors_merge() -> None:
    files = [make_segment(i, i) for i in range(40) if i != 5]
    assert [merge.target for merge in layout.plan_merges(files)] == [make_segment(16, 31)]


def test_ten_hours_of_flushes_keep_few_segments() -> None:
    segments: list[Segment] = []
    max_count = 0
    for number in range(10 * 3600 // 5):
        segments.append(make_segment(number, number))
        while merges := layout.plan_merges(segments):
            for merge in merges:
                segments = [s for s in segments if s not in merge.sources] + [merge.target]
        max_count = max(max_count, len(segments))
        assert not layout.find_gaps(segments[:0])
    assert layout.find_gaps(segments) == []
    assert max_count < 60
