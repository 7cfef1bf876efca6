"""Columns of a block by the compiled scanner, completed by the events that it leaves to Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto._scan import ScannedBlock, Scanner, load_scanner
from stepscope.importers.kineto.columns import Chunk, Columns
from stepscope.importers.kineto.gather import STRING_COLUMNS, absent
from stepscope.importers.kineto.kinds import Kind
from stepscope.schema import EVENT_KINDS

_BLOCK_RULE_KINDS = frozenset(
    kind for kind in EVENT_KINDS if any(a.older_key or a.only_with for a in kind.arguments)
)
"""Kinds with columns that depend on all events of a block."""
_scanners = threading.local()
"""`.scanner` is that of the running thread, from its first block on; None where there is none."""


def scan_block(
    text: bytes | bytearray | memoryview,
    decode_odd: Callable[[Sequence[bytes | bytearray | memoryview]], Chunk | None],
) -> Chunk | None:
    """Scan a block.

    Args:
        text: events separated by commas.
        decode_odd: decodes the texts of events that the scanner does not understand; None when
            one of them is malformed.

    Returns:
        None when the whole block is left to Python.
    """
    block = _scan(text)
    if block is None:
        return None
    if not block.odd_extents:
        return _complete(block, Chunk())
    odd = decode_odd([text[start:end] for start, end in block.odd_extents])
    if odd is None or (odd.columns.keys() & _BLOCK_RULE_KINDS) or block.has_block_rules:
        return None
    return _complete(block, odd)


def is_scannable(text: bytes | bytearray | memoryview) -> bool:
    """Return True if the compiled scanner is in use and understands most events of a block."""
    return _scan(text) is not None


def _scan(text: bytes | bytearray | memoryview) -> ScannedBlock | None:
    try:
        scanner: Scanner | None = _scanners.scanner
    except AttributeError:
        scanner = _scanners.scanner = load_scanner()
    return None if scanner is None else scanner.scan(text)


def _complete(block: ScannedBlock, odd: Chunk) -> Chunk:
    """Return all events of a block as one chunk, as if they had been decoded together."""
    strings, tracks = len(block.strings), len(block.tracks)
    columns: dict[Kind, Columns] = dict(block.columns)
    for kind, added in odd.columns.items():
        added["order"] = block.odd_order[added["order"]]
        for name, values in added.items():
            if name in STRING_COLUMNS:
                added[name] = np.where(values >= 0, values + strings, values).astype(np.int32)
        added["track"] = added["track"] + np.int32(tracks)
        columns[kind] = _merge(columns[kind], added) if kind in columns else added
    chunk = Chunk(
        columns=dict(sorted(columns.items(), key=lambda item: int(item[1]["order"][0]))),
        strings=block.strings + odd.strings,
        tracks=block.tracks + odd.tracks,
        metadata=odd.metadata,
        event_count=block.event_count,
        flow_counts=(
            block.flow_counts[0] + odd.flow_counts[0],
            block.flow_counts[1] + odd.flow_counts[1],
        ),
    )
    _renumber_tracks(chunk)
    return chunk


def _merge(scanned: Columns, odd: Columns) -> Columns:
    """Merge events of one kind in the order of the file."""
    order = np.argsort(np.concatenate([scanned["order"], odd["order"]]))
    counts = len(scanned["order"]), len(odd["order"])
    return {
        name: np.concatenate(
            [
                part[name] if name in part else absent(name, count)
                for part, count in zip((scanned, odd), counts, strict=True)
            ]
        )[order]
        for name in dict.fromkeys([*scanned, *odd])
    }


def _renumber_tracks(chunk: Chunk) -> None:
    """Number tracks in the order in which the events of one kind after the other have them."""
    renumbered: dict[tuple[int | str, int | str], int] = {}
    first: NDArray[np.int64] = np.empty(len(chunk.tracks), dtype=np.int64)
    for columns in chunk.columns.values():
        track = columns["track"]
        first.fill(-1)
        first[track[::-1]] = np.arange(len(track) - 1, -1, -1)
        present = np.flatnonzero(first >= 0)
        for number in present[np.argsort(first[present])].tolist():
            renumbered.setdefault(chunk.tracks[number], len(renumbered))
    codes = np.array([renumbered.get(track, -1) for track in chunk.tracks], dtype=np.int32)
    for columns in chunk.columns.values():
        columns["track"] = codes[columns["track"]]
    chunk.tracks = list(renumbered)
