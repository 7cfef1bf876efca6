"""Facts about the memory of a process: a census of what its containers hold."""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.schema.model_facts import Fact

HolderKind = Literal["global", "local", "attribute", "class", "closure", "cache", ""]
"""What holds objects: a global of a module, a variable of a function that runs, an attribute of an
object or of a class, a variable of a closure, the cache of a function (`lru_cache`); '' for
something that no name was found for."""


class MemoryHolderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Container, or large value, that has grown between two censuses."""

    name: str = ""
    """Its name; with the class for an attribute. '' if none was found."""
    kind: HolderKind = ""
    """What holds it."""
    owner: str = ""
    """Module, function or class that it is a variable or an attribute of."""
    path: str = ""
    """Path from a variable of the job, such as `trainer.meter.values`."""
    file: str = ""
    """File of the owner; '' if unknown."""
    line: int = 0
    """The only line of the code that can run that adds to it; 0 if there is not just one."""
    type: str = ""
    """Type of the container."""
    item_type: str = ""
    """Commonest type of its newest items."""
    item_count: int = 0
    """Number of its items at the second census."""
    items: int = 0
    """Items more than at the first census."""
    bytes: int = 0
    """Bytes of these, from a sample of them; what only C code sees is not in it."""
    has_graph: bool = False
    """Tensors among the items hold their graph, whose memory only C++ code sees."""
    device: str = ""
    """Device of the tensors among them; '' for the host."""
    is_copy: bool = False
    """It has not grown: pages that it shared with the parent process were copied."""


class TypeGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Type of which there are more objects than at the first census."""

    type: str
    """Name with its module."""
    count: int
    """Objects at the second census."""
    growth: int
    """Objects more than at the first."""


class TensorGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors of a device and shape of which there are more than at the first census."""

    device: str
    """Type of the device."""
    shape: list[int]
    """Sizes of the dimensions."""
    has_graph: bool
    """They hold their graph."""
    count: int
    """Tensors at the second census."""
    growth: int
    """Tensors more than at the first."""
    bytes: int
    """Bytes of one of them."""


CensusStage = Literal[
    "shared", "list", "objects", "names", "containers", "tensors", "values", "graphs", "pages",
    "sizes", "referrers", "lines",
]  # fmt: skip
"""Part of a census: the list of all objects, which forked processes that share pages prevent
(`shared`) or too many objects (`list`); a look at each of them (`objects`); the walk along the
names of the job (`names`); lengths of containers; counts of tensors; sizes of named values; nodes
of their graphs; state of pages; sizes of new items; the search for what refers to a container
without a name (`referrers`); the search for lines that add to it (`lines`)."""


class MemoryCensusFact(Fact, frozen=True, kw_only=True, tag="memory_census"):
    """Two censuses of the memory of a process, and what has grown between them."""

    request: int
    """Number of the request in the spool of its node."""
    unit: Literal["step", "batch"]
    """What `count` counts: batches in a worker of a loader."""
    count: int
    """Steps or batches between the censuses."""
    duration_ns: int
    """Time between them."""
    pauses_ns: list[int]
    """Time for which each has held up the process."""
    object_count: int
    """Objects that the garbage collector tracks; 0 in a worker, where they are not looked at."""
    scanned_count: int = 0
    """Objects that both censuses looked at."""
    is_sampled: bool
    """Not all objects were looked at."""
    left_out: list[CensusStage] = msgspec.field(default_factory=list)
    """Stages that were cut short."""
    shared_bytes: int = 0
    """Limit on the memory of pages that it shared with forked processes, and that a look at objects
    may have copied."""
    resident_bytes: int
    """Resident memory of the process."""
    anonymous_growth_bytes: int
    """Growth of its anonymous memory, shared pages included."""
    private_growth_bytes: int
    """Growth of the memory that it shares with no other process."""
    holders: list[MemoryHolderRecord] = msgspec.field(default_factory=list)
    """What has grown, the largest first."""
    types: list[TypeGrowth] = msgspec.field(default_factory=list)
    """Types of which there are more objects."""
    tensors: list[TensorGrowth] = msgspec.field(default_factory=list)
    """Tensors of which there are more."""
