"""Names in a run directory. Pure: strings in, strings out.

    run.json                                    written once
    nodes/<node>/node.json, status.json         replaced whole
    processes/<process>.json                    replaced whole
    findings/<name>.json, tries/<name>.json     and other kinds of document
    labels/run.json                             title, tags and notes of users, replaced whole
    labels/notes.json                           notes and saved views of users, replaced whole
    results/<name>.json                         computed of the files above, and replaced whole
    tables/<table>/<node>/<first>-<last>.parquet
    tables/<table>/<node>/<first>-<last>.coarse-<n>.parquet
    tensors/<process>/<log>-<seq>.npy           elements of a tensor
    tables/<table>/<node>/continued             empty: a second writer has appended to the table
    segments/<table>/<node>.json                in an object store: the segments of a node

A node numbers the flushes of each table from 0. A segment holds the rows of flushes `first` to
`last`. Sixteen adjacent segments of one width merge into one of sixteen times the width. The merged
file is written before the old ones are deleted, so for a moment, or permanently after a crash, both
exist. Readers ignore a segment whose range lies inside that of another. A coarse segment
(`store.rounding`) replaces the finer one of its range in the same way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec

RUN_KEY = "run.json"
NODES = "nodes/"
PROCESSES = "processes/"
RESULTS = "results/"
FINDINGS = "findings/"
LABELS = "labels/"
VERDICT_KEY = "findings/verdict.json"
FAN_IN = 16
"""Segments of one width that merge into one of the next."""

_CONTINUED = "continued"
_RESERVED_KINDS = frozenset({"nodes", "processes", "segments", "tables", "tensors"})
_SEGMENT_KEY = re.compile(r"tables/([^/]+)/([^/]+)/(\d{8,})-(\d{8,})(?:\.coarse-(\d))?\.parquet")


def encode_file_name(name: str) -> str:
    """Percent-encode a name as a file name: reversible, and never hidden."""
    if not name:
        raise ValueError("an empty name cannot name a file")
    encoded = quote(name.encode("utf-8", "surrogatepass"), safe="")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def decode_file_name(name: str) -> str:
    """Invert `encode_file_name`."""
    return unquote_to_bytes(name).decode("utf-8", "surrogatepass")


def node_key(node: str) -> str:
    """Key of the description of a machine."""
    return f"{NODES}{encode_file_name(node)}/node.json"


def status_key(node: str) -> str:
    """Key of the job's status as the monitor of one machine sees it."""
    return f"{NODES}{encode_file_name(node)}/status.json"


def node_of_key(key: str) -> str:
    """Node of a key below `nodes/`."""
    return decode_file_name(key.split("/")[1])


def process_key(process: str) -> str:
    """Key of the manifest of one process."""
    return f"{PROCESSES}{encode_file_name(process)}.json"


def tensor_key(process: str, log: str, seq: int) -> str:
    """Key of the elements of a tensor, by the key of its row in `tensor_elements`."""
    return f"tensors/{encode_file_name(process)}/{encode_file_name(log)}-{seq}.npy"


def document_key(kind: str, name: str) -> str:
    """Key of a document, for example kind 'findings', name 'verdict'."""
    return f"{document_prefix(kind)}{encode_file_name(name)}.json"


def document_prefix(kind: str) -> str:
    """Prefix of the documents of a kind."""
    if kind in _RESERVED_KINDS:
        raise ValueError(f"{kind!r} is not a kind of document")
    return f"{encode_file_name(kind)}/"


def table_prefix(table: str, node: str | None = None) -> str:
    """Prefix of the segments of a table, of all nodes or of one."""
    return f"tables/{table}/" if node is None else f"tables/{table}/{encode_file_name(node)}/"


def segments_prefix(table: str) -> str:
    """Prefix of the lists of the files of a table, in an object store."""
    return f"segments/{table}/"


def segments_key_of(key: str) -> str:
    """Key of the list that names a file below `tables/`."""
    _, table, node, _ = key.split("/")
    return f"{segments_prefix(table)}{node}.json"


def table_prefix_of(key: str) -> str:
    """Prefix of the files that the list of this key names."""
    _, table, name = key.split("/")
    return f"tables/{table}/{name.removesuffix('.json')}/"


def continued_key(table: str, node: str) -> str:
    """Key of the mark that a second writer has appended to a node's table, so that records may be
    in it twice."""
    return table_prefix(table, node) + _CONTINUED


def is_continued(keys: Iterable[str]) -> bool:
    """Return True if a key is one of `continued_key`."""
    return any(key.endswith(f"/{_CONTINUED}") for key in keys)


class Segment(NamedTuple):
    """One Parquet file: the rows of flushes `first` to `last`, both included, of one node."""

    table: str
    node: str
    first: int
    last: int
    coarseness: int = 0
    """Grid to which its numbers are rounded, of `store.rounding`; 0 for none."""

    @property
    def key(self) -> str:
        """Key of the file."""
        prefix = table_prefix(self.table, self.node)
        coarse = f".coarse-{self.coarseness}" if self.coarseness else ""
        return f"{prefix}{self.first:08}-{self.last:08}{coarse}.parquet"

    @property
    def width(self) -> int:
        """Number of flushes in it."""
        return self.last - self.first + 1


class Merge(msgspec.Struct, frozen=True):
    """Segments, in order, and the one that replaces them."""

    target: Segment
    sources: tuple[Segment, ...]


def parse_segment(key: str) -> Segment | None:
    """Parse the key of a segment; None for any other key."""
    match = _SEGMENT_KEY.fullmatch(key)
    if match is None or int(match[3]) > int(match[4]):
        return None
    first, last, coarseness = int(match[3]), int(match[4]), int(match[5] or 0)
    return Segment(match[1], decode_file_name(match[2]), first, last, coarseness)


def select_visible(segments: Iterable[Segment]) -> list[Segment]:
    """Select the segments to read: those that no other covers, in the order of their rows."""
    visible: list[Segment] = []
    # Of two with the same start, the wider sorts first, and of two of one range the coarser, so
    # comparing with the last one suffices.
    for segment in sorted(
        segments, key=lambda s: (s.table, s.node, s.first, -s.last, -s.coarseness)
    ):
        if not (visible and _covers(visible[-1], segment)):
            visible.append(segment)
    return visible


def find_covered(segments: Iterable[Segment]) -> list[Segment]:
    """Find the segments that readers ignore."""
    distinct = set(segments)
    return sorted(distinct - set(select_visible(distinct)))


def _covers(wide: Segment, narrow: Segment) -> bool:
    same_series = (wide.table, wide.node) == (narrow.table, narrow.node)
    return same_series and narrow.last <= wide.last


def find_gaps(segments: Iterable[Segment]) -> list[Segment]:
    """Find the flushes that were written but are in no segment, as missing segments."""
    missing: list[Segment] = []
    next_flush: dict[tuple[str, str], int] = defaultdict(int)
    for segment in select_visible(segments):
        series = (segment.table, segment.node)
        if segment.first > next_flush[series]:
            missing.append(Segment(*series, next_flush[series], segment.first - 1))
        next_flush[series] = segment.last + 1
    return missing


def plan_merges(segments: Iterable[Segment]) -> list[Merge]:
    """Plan the merges that are possible now: complete groups of sixteen.

    Groups are aligned like the digits of a number in base sixteen, so a range never reaches over a
    segment that is left out, whatever is missing or damaged around it. The segments of a group are
    equally coarse.
    """
    groups: dict[Segment, list[Segment]] = defaultdict(list)
    for segment in select_visible(segments):
        width = segment.width * FAN_IN
        first = segment.first - segment.first % width
        last = first + width - 1
        target = Segment(segment.table, segment.node, first, last, segment.coarseness)
        groups[target].append(segment)
    return [
        Merge(target, tuple(sources))
        for target, sources in groups.items()
        if len(sources) == FAN_IN
    ]
