"""The names in a run directory. Pure: strings in, strings out.

    run.json                                    written once
    nodes/<node>/node.json, status.json         replaced whole
    processes/<process>.json                    replaced whole
    findings/<name>.json                        and other kinds of document
    tables/<table>/<node>/<first>-<last>.parquet

Each flush of a table by a node has a number, counted from 0. A segment holds the rows of flushes
`first` to `last`. Sixteen neighbours of one width merge into one segment of sixteen times the
width; the merged file is written before the old ones are deleted, so that for a moment, or for
ever after a crash, both exist. Whoever sees a segment inside the range of another ignores it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

__all__ = [
    "FAN_IN",
    "NODES",
    "PROCESSES",
    "RUN_KEY",
    "Merge",
    "Segment",
    "covered",
    "document_key",
    "file_name",
    "gaps",
    "merges",
    "node_key",
    "node_of",
    "original_name",
    "process_key",
    "segment_of",
    "status_key",
    "table_prefix",
    "visible",
]

RUN_KEY = "run.json"
NODES = "nodes/"
PROCESSES = "processes/"
FAN_IN = 16
"""Segments of one width that merge into one of the next."""

_RESERVED_KINDS = frozenset({"nodes", "processes", "tables"})
_SEGMENT_KEY = re.compile(r"tables/([^/]+)/([^/]+)/(\d{8,})-(\d{8,})\.parquet")


def file_name(name: str) -> str:
    """A name as a file name: percent-encoded, never hidden, never the same for two names."""
    if not name:
        raise ValueError("an empty name cannot name a file")
    encoded = quote(name.encode("utf-8", "surrogatepass"), safe="")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def original_name(name: str) -> str:
    """What `file_name` was given."""
    return unquote_to_bytes(name).decode("utf-8", "surrogatepass")


def node_key(node: str) -> str:
    """Key of the description of a machine."""
    return f"{NODES}{file_name(node)}/node.json"


def status_key(node: str) -> str:
    """Key of the job's status as the monitor of one machine sees it."""
    return f"{NODES}{file_name(node)}/status.json"


def node_of(key: str) -> str:
    """Node of a key below `nodes/`."""
    return original_name(key.split("/")[1])


def process_key(process: str) -> str:
    """Key of what one process said of itself."""
    return f"{PROCESSES}{file_name(process)}.json"


def document_key(kind: str, name: str) -> str:
    """Key of a document, for example kind 'findings', name 'verdict'."""
    if kind in _RESERVED_KINDS:
        raise ValueError(f"{kind!r} is no kind of document")
    return f"{file_name(kind)}/{file_name(name)}.json"


def table_prefix(table: str, node: str | None = None) -> str:
    """Prefix of the segments of a table, of all nodes or of one."""
    return f"tables/{table}/" if node is None else f"tables/{table}/{file_name(node)}/"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One Parquet file: the rows of flushes `first` to `last`, both included, of one node."""

    table: str
    node: str
    first: int
    last: int

    @property
    def key(self) -> str:
        """Its key."""
        prefix = table_prefix(self.table, self.node)
        return f"{prefix}{self.first:08}-{self.last:08}.parquet"

    @property
    def width(self) -> int:
        """How many flushes it holds."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Merge:
    """Segments, in order, and the one that will take their place."""

    target: Segment
    members: tuple[Segment, ...]


def segment_of(key: str) -> Segment | None:
    """The segment that a key names; None when it names something else."""
    match = _SEGMENT_KEY.fullmatch(key)
    if match is None or int(match[3]) > int(match[4]):
        return None
    return Segment(match[1], original_name(match[2]), int(match[3]), int(match[4]))


def visible(segments: Iterable[Segment]) -> list[Segment]:
    """The segments to read: those that no other covers, in the order of their rows."""
    chosen: list[Segment] = []
    # Of two that begin together the wider comes first, so one look at the last chosen suffices.
    for segment in sorted(
        segments, key=lambda each: (each.table, each.node, each.first, -each.last)
    ):
        if not (chosen and _covers(chosen[-1], segment)):
            chosen.append(segment)
    return chosen


def covered(segments: Iterable[Segment]) -> list[Segment]:
    """The segments that nobody reads any more."""
    every = set(segments)
    return sorted(every - set(visible(every)))


def _covers(wide: Segment, narrow: Segment) -> bool:
    same_place = (wide.table, wide.node) == (narrow.table, narrow.node)
    return same_place and narrow.last <= wide.last


def gaps(segments: Iterable[Segment]) -> list[Segment]:
    """Flushes that were written but lie in no segment, as the segments that are missing."""
    missing: list[Segment] = []
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for segment in visible(segments):
        place = (segment.table, segment.node)
        if segment.first > expected[place]:
            missing.append(Segment(*place, expected[place], segment.first - 1))
        expected[place] = segment.last + 1
    return missing


def merges(segments: Iterable[Segment]) -> list[Merge]:
    """What can be merged now: full groups of sixteen.

    Groups are aligned, as digits are in a number of base sixteen: a range then never reaches
    over a segment that is left out, whatever is missing or damaged around it.
    """
    groups: dict[Segment, list[Segment]] = defaultdict(list)
    for segment in visible(segments):
        wider = segment.width * FAN_IN
        first = segment.first - segment.first % wider
        target = Segment(segment.table, segment.node, first, first + wider - 1)
        groups[target].append(segment)
    return [
        Merge(target, tuple(members))
        for target, members in groups.items()
        if len(members) == FAN_IN
    ]
