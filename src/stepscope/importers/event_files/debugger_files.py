"""Files of SageMaker Debugger's tensors below the output directory of a job: names and JSON.

collections/<9 digits>/worker_0_collections.json    tensors of each collection
index/<9 digits>/<12-digit step>_<worker>.json      shapes of the tensors of a step
events/<12-digit step>/<step>_<worker>.tfevents     the tensors of a step
"""

from __future__ import annotations

import enum
import re
from pathlib import Path

import msgspec

from stepscope.importers.content import read_head

_EVENTS = re.compile(r"\d{12}_(?P<worker>.+)\.tfevents")
_STEP = re.compile(r"\d{12}")
_INDEX = re.compile(r"\d{12}_(?P<worker>.+)\.json")
_COLLECTIONS = re.compile(r"(?P<worker>.+)_collections\.json")
_RANK = re.compile(r"worker_(\d+)")
_GENERAL = frozenset({"all", "default"})
"""Collections that do not tell what a tensor is."""
_NAMES = (
    ("losses", re.compile(r"[Ll]oss_(?!input).*output")),
    ("weights", re.compile(r"^(?!gradient).*weight")),
    ("biases", re.compile(r"^(?!gradient).*bias")),
    ("gradients", re.compile(r"^gradient")),
)
"""Collections of tensors that the files do not assign, by Debugger's expressions for PyTorch."""


class Form(enum.Enum):
    """Content of a file."""

    COLLECTIONS = "collections"
    INDEX = "index"
    EVENTS = "events"


class _Shape(msgspec.Struct):
    tensorname: str
    shape: list[int] = []


class IndexFile(msgspec.Struct):
    """Index of the tensors of a step and worker."""

    shape_payload: list[_Shape] | None = None


class _Collection(msgspec.Struct):
    tensor_names: list[str] | None = None


class _Meta(msgspec.Struct):
    num_workers: int | None = None


class CollectionsFile(msgspec.Struct):
    """Collections of a job."""

    collections: dict[str, _Collection | None]
    meta: _Meta = msgspec.field(name="_meta", default_factory=_Meta)

    def of_tensors(self) -> dict[str, str]:
        """Return the collection of each tensor, if one tells more than `all` and `default`."""
        return {
            tensor: name
            for name, collection in self.collections.items()
            if name not in _GENERAL and collection is not None
            for tensor in collection.tensor_names or ()
        }


def detect_form(path: Path) -> Form | None:
    """Return the form of a file; None if it is not one of Debugger's tensors."""
    if _EVENTS.fullmatch(path.name) and (
        _STEP.fullmatch(path.parent.name) or path.parent.name == "events"
    ):
        return Form.EVENTS
    if _INDEX.fullmatch(path.name) and b'"tensor_payload"' in read_head(path):
        return Form.INDEX
    if _COLLECTIONS.fullmatch(path.name) and b'"collections"' in read_head(path):
        return Form.COLLECTIONS
    return None


def worker_of(path: Path) -> str:
    """Return the worker in the name of a file of events or of an index."""
    match = _EVENTS.fullmatch(path.name) or _INDEX.fullmatch(path.name)
    return match["worker"] if match else path.stem


def rank_of(worker: str) -> int | None:
    """Return the rank of a worker; None if its name has none."""
    match = _RANK.fullmatch(worker)
    return int(match[1]) if match else None


def guess_collection(tensor: str) -> str:
    """Return the collection of a tensor by its name; `default` if it tells nothing."""
    return next((name for name, pattern in _NAMES if pattern.search(tensor)), "default")
