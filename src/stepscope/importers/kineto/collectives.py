"""Collectives: their description in the arguments of operators and kernels, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from stepscope.importers.kineto.cells import ABSENT, int64, text_of
from stepscope.store import DictColumn


class CollectiveArgs(msgspec.Struct, gc=False):
    """Description of the collective that an operator or kernel is part of."""

    name: str = msgspec.field(name="Collective name", default="")
    dtype: str | None = None
    in_elements: int = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: int = msgspec.field(name="Out msg nelems", default=ABSENT)
    group: str | int | None = msgspec.field(name="Process Group Name", default=None)
    group_id: str | int | None = msgspec.field(name="Process Group ID", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    group_size: int = msgspec.field(name="Group size", default=ABSENT)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    sequence: int = msgspec.field(name="Seq", default=ABSENT)
    communicator: Any = msgspec.field(name="Comms Id", default=None)
    peer_source: int = msgspec.field(name="Src Rank", default=ABSENT)
    peer_destination: int = msgspec.field(name="Dst Rank", default=ABSENT)
    in_split: Any = msgspec.field(name="In split size", default=None)
    out_split: Any = msgspec.field(name="Out split size", default=None)
    rank: Any = msgspec.field(name="Rank", default=None)
    rank_start: Any = msgspec.field(name="Global rank start", default=None)
    rank_stride: Any = msgspec.field(name="Global rank stride", default=None)


_FIELDS = msgspec.structs.fields(CollectiveArgs)
COLLECTIVE_KEYS = frozenset(field.encode_name for field in _FIELDS)
"""Keys of an operator's or kernel's arguments that describe its collective."""
_NUMBERS = (
    "in_elements", "out_elements", "group_size", "sequence", "peer_source", "peer_destination",
)  # fmt: skip
_TEXTS = ("name", "dtype", "group_description", "group_ranks", "in_split", "out_split")
_REST = ("communicator", "rank", "rank_start", "rank_stride")
_KEYS = {field.name: field.encode_name for field in _FIELDS}


def collective_rows(descriptions: Iterable[tuple[int, bool, str]]) -> Mapping[str, Any]:
    """Return rows of the table `collectives`.

    Args:
        descriptions: id of the event, True for device work, and its `CollectiveArgs` as JSON.
    """
    ids, on_device, texts = zip(*descriptions, strict=True)
    collectives = [msgspec.json.decode(text, type=CollectiveArgs) for text in texts]
    return {
        "id": np.array(ids, dtype=np.int64),
        "on_device": np.array(on_device, dtype=np.int64),
        **{name: int64([getattr(args, name) for args in collectives]) for name in _NUMBERS},
        **{
            name: DictColumn.encode(text_of(getattr(args, name)) for args in collectives)
            for name in _TEXTS
        },
        "group": DictColumn.encode(
            text_of(args.group_id if args.group is None else args.group) for args in collectives
        ),
        "args": DictColumn.encode(map(_rest, collectives)),
    }


def _rest(args: CollectiveArgs) -> str | None:
    items = {_KEYS[name]: getattr(args, name) for name in _REST}
    items = {key: value for key, value in items.items() if value is not None}
    return msgspec.json.encode(items).decode() if items else None
