"""Two censuses of a process, and what has grown between them.

A census counts, at a step boundary, the items of containers, the objects of each type, the tensors
of each device and shape, the bytes of large values by name, and the private copies of shared pages.
It keeps numbers only. The comparison of a second one finds the containers that have grown, measures
some of their newest items, and names them (`holders`).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from itertools import compress

from stepscope.capture.census import pages
from stepscope.capture.census.holders import Edge, Name, Scope, Walk, name_by_referrers, name_node
from stepscope.capture.census.lines import find_adding_line
from stepscope.capture.census.objects import (
    CONTAINERS,
    ItemSizes,
    Types,
    describe_type,
    is_tensor_class,
    last_items,
    length_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PAUSE_NS_PER_OBJECT = 350
"""Time after which a census leaves out the rest, in addition to `MIN_PAUSE_NS`."""
MIN_PAUSE_NS = 150_000_000
MIN_ITEMS = 16
"""Smaller containers that no walk reaches are not compared."""
MAX_CONTAINERS = 100_000
CHUNK = 65_536
"""Objects that are looked at together, so that their types need little memory."""
MAX_TENSORS = 10_000
MAX_VALUES = 2_000
MIN_VALUE_BYTES = 65_536
MIN_ITEMS_PER_STEP = 0.2
MAX_MEASURED = 24
MAX_HOLDERS = 8
MAX_ROWS = 10
SAMPLED_ITEMS = 16
MAX_GRAPH_NODES = 4096
MIN_VALUE_SHARE = 0.3
"""Share of the growth of the process that a value replaced by a larger one must have: two censuses
do not tell growth from values that vary, such as batches."""


_CONTAINER_TYPES = (list, dict, set, deque, OrderedDict, defaultdict)


class Census:
    """Counts at one step boundary.

    Args:
        dataset: data set of a worker; None in a process that trains.
        is_worker: the process was forked to load data. Then only what is reachable by the names of
            the job is looked at: a look at each object would copy the pages that it shares.
    """

    def __init__(self, dataset: object | None, *, is_worker: bool) -> None:
        self.t_ns = time.monotonic_ns()
        self.memory = read_memory()
        self.is_worker = is_worker
        self._types = Types()
        self._objects: list[Any] = [] if is_worker else gc.get_objects()
        self.object_count = len(self._objects)
        self._limit_ns = MIN_PAUSE_NS + PAUSE_NS_PER_OBJECT * self.object_count
        self._scope = Scope(dataset)
        self._walk = Walk(self._scope, self._types, time.monotonic_ns() + self._limit_ns // 3)
        self.is_sampled = not self._walk.is_complete
        self.lengths: dict[int, tuple[int, int]] = {}
        """Number of items and id of the type of containers, by id."""
        self._containers: dict[int, Any] = {}
        self.types: Counter[str] = Counter()
        self.tensors: Counter[tuple[str, tuple[int, ...], bool]] = Counter()
        self.tensor_bytes: dict[tuple[str, tuple[int, ...], bool], int] = {}
        self.values: dict[str, int] = {}
        """Bytes of large values by path."""
        self.graphs: dict[str, int] = {}
        """Nodes of the graphs of tensors by path."""
        self.pages: dict[int, pages.SharedPages] = {}
        self._named: dict[str, Any] = {}
        self._tensors: list[Any] = []
        self._scan()
        self._count_containers()
        self._count_tensors()
        self._measure_values()
        if is_worker and pages.can_read():
            self._read_pages()
        self.pause_ns = time.monotonic_ns() - self.t_ns

    def forget_objects(self) -> None:
        """Keep the numbers only: no object of the job lives longer because of a census."""
        self._objects, self._tensors = [], []
        self._containers, self._named = {}, {}
        del self._walk, self._scope, self._types

    def _scan(self) -> None:
        """Count objects by type; collect the containers and the tensors. Loops are those of C."""
        counts: Counter[int] = Counter()
        classes: dict[int, type] = {}
        containers, tensors = set(map(id, _CONTAINER_TYPES)), set[int]()
        large: list[Any] = []
        for start in range(0, len(self._objects), CHUNK):
            if time.monotonic_ns() - self.t_ns > self._limit_ns:
                self.is_sampled = True
                break
            chunk = self._objects[start : start + CHUNK]
            keys = list(map(id, map(type, chunk)))
            chunk_counts = Counter(keys)
            new = chunk_counts.keys() - classes.keys()
            if new:
                examples = dict(zip(keys, chunk))
                classes.update((key, type(examples[key])) for key in new)
                tensors.update(key for key in new if is_tensor_class(classes[key]))
            counts.update(chunk_counts)
            candidates = list(compress(chunk, map(containers.__contains__, keys)))
            large += compress(candidates, map(MIN_ITEMS.__le__, map(len, candidates)))
            if tensors:
                self._tensors += compress(chunk, map(tensors.__contains__, keys))
        for key, count in counts.items():
            self.types[describe_type(classes[key])] += count
        if len(large) > MAX_CONTAINERS:  # the same of both censuses
            self.is_sampled = True
            part = len(large) // MAX_CONTAINERS + 1
            large = [v for v in large if len(v) >= 1024 or not id(v) // 16 % part]
        self._containers.update(zip(map(id, large), large))

    def _count_containers(self) -> None:
        for key, node in self._walk.nodes.items():
            if node.info.kind in CONTAINERS:
                self._containers[key] = node.value
        find = self._types.find
        self.lengths = {
            key: (length_of(value, find(value).kind), id(type(value)))
            for key, value in self._containers.items()
        }

    def _count_tensors(self) -> None:
        """Count the tensors by device, shape and graph."""
        self.is_sampled |= len(self._tensors) > MAX_TENSORS
        for value in self._tensors[-MAX_TENSORS:]:
            external = self._types.find(value).external
            memory = external(value) if external is not None else None
            if memory is not None:
                group = memory.device or "cpu", memory.shape, memory.has_graph
                self.tensors[group] += 1
                self.tensor_bytes[group] = memory.bytes

    def _measure_values(self) -> None:
        """Measure large values that a name holds directly, which may be replaced by larger ones."""
        graph_count = 0
        for node in list(self._walk.nodes.values()):
            external = node.info.external
            if node.kind == Edge.ITEM or external is None:
                continue
            if len(self.values) >= MAX_VALUES:
                break
            memory = external(node.value)
            if memory is None or memory.device:
                continue
            if not memory.has_graph and memory.bytes < MIN_VALUE_BYTES:
                continue  # finding its name takes longer than reading it
            name = name_node(node, self._scope)
            if name is None:
                continue
            key = f"{name.text}|{name.path}"
            if memory.has_graph and graph_count < 64:
                graph_count += 1
                self.graphs[key] = count_graph(node.value)
                self._named[key] = node, name
            if memory.bytes >= MIN_VALUE_BYTES:
                self.values[key] = memory.bytes
                self._named[key] = node, name

    def _read_pages(self) -> None:
        sequences = [
            node
            for node in self._walk.nodes.values()
            if (type(node.value) is list or type(node.value) is tuple)
            and len(node.value) >= pages.MIN_ITEMS
        ]
        sequences.sort(key=lambda node: -len(node.value))
        for node in sequences[: pages.MAX_SEQUENCES]:
            state = pages.read_pages(node.value)
            if state is not None:
                self.pages[id(node.value)] = state

    def compare(self, first: Census, count: int) -> dict[str, Any]:
        """Return what has grown since another census of the same process.

        Args:
            first: the earlier census.
            count: steps or batches between them.
        """
        holders = self._compare_containers(first, count)
        holders += self._compare_values(first)
        holders += self._compare_pages(first)
        holders.sort(key=lambda holder: (-holder["bytes"], -holder["items"]))
        return {
            "holders": holders[:MAX_HOLDERS],
            "types": _growth(self.types, first.types),
            "tensors": [
                {
                    "device": group[0],
                    "shape": list(group[1]),
                    "has_graph": group[2],
                    "count": self.tensors[group],
                    "growth": self.tensors[group] - first.tensors[group],
                    "bytes": self.tensor_bytes[group],
                }
                for group, _ in (self.tensors - first.tensors).most_common(MAX_ROWS)
            ],
        }

    def _compare_containers(self, first: Census, count: int) -> list[dict[str, Any]]:
        minimum = max(2, MIN_ITEMS_PER_STEP * count)
        ignored = {id(first.__dict__), id(self.__dict__), id(first.lengths), id(first.types)}
        growth: list[tuple[int, int]] = []
        for key, (length, cls) in self.lengths.items():
            before = first.lengths.get(key)
            if before is None or key in ignored:
                continue
            if before[1] == cls and length - before[0] >= minimum:
                growth.append((length - before[0], key))
        growth.sort(reverse=True)
        measured = []
        for items, key in growth[:MAX_MEASURED]:
            value = self._containers[key]
            kind = self._types.find(value).kind
            try:
                sizes = ItemSizes(last_items(value, kind, min(items, SAMPLED_ITEMS)), self._types)
            except RuntimeError:  # another thread changes it
                continue
            measured.append((sizes.mean_bytes * items, items, key, sizes))
        measured.sort(key=lambda row: (-row[0], -row[1]))
        return [
            holder
            for total, items, key, sizes in measured
            if (holder := self._describe(key, total, items, sizes)) is not None
        ]

    def _describe(
        self, key: int, total: float, items: int, sizes: ItemSizes
    ) -> dict[str, Any] | None:
        node = self._walk.nodes.get(key)
        value = self._containers[key]
        if node is not None:
            name = name_node(node, self._scope)
            if name is None:
                return None
        else:
            ignored = {id(self._objects), id(self._containers), id(self.__dict__)}
            deadline_ns = self.t_ns + self._limit_ns
            name = name_by_referrers(value, self._scope, self._types, ignored, deadline_ns)
            if name is None and total < MIN_VALUE_BYTES:
                return None
        item_type = "" if sizes.type is None else describe_type(sizes.type)
        return make_holder(
            name,
            self._scope,
            container=describe_type(type(value)),
            item_type=item_type,
            items=items,
            item_count=self.lengths[key][0],
            size=round(total),
            has_graph=sizes.has_graph,
            device=sizes.device,
        )

    def _compare_values(self, first: Census) -> list[dict[str, Any]]:
        total = max(1, self.memory.anonymous - first.memory.anonymous)
        holders = []
        for key, (node, name) in self._named.items():
            nodes = self.graphs.get(key, 0) - first.graphs.get(key, 0)
            grows_graph = key in first.graphs and nodes > first.graphs[key] / 2 and nodes > 8
            growth = self.values.get(key, 0) - first.values.get(key, self.values.get(key, 0))
            if grows_graph or growth >= MIN_VALUE_SHARE * total:
                holders.append(
                    make_holder(
                        name,
                        self._scope,
                        container=describe_type(type(node.value)),
                        item_type="node of its graph" if grows_graph else "",
                        items=nodes if grows_graph else 0,
                        item_count=self.graphs.get(key, 0) if grows_graph else 0,
                        size=max(0, growth),
                        has_graph=grows_graph,
                    )
                )
        return holders

    def _compare_pages(self, first: Census) -> list[dict[str, Any]]:
        holders = []
        for key, state in self.pages.items():
            before = first.pages.get(key)
            if before is None or state.exclusive_ratio <= before.exclusive_ratio:
                continue
            node = self._walk.nodes[key]
            name = name_node(node, self._scope)
            copied = (state.exclusive_ratio - before.exclusive_ratio) * state.total_bytes
            if name is not None and copied >= MIN_VALUE_BYTES:
                holder = make_holder(
                    name,
                    self._scope,
                    container=describe_type(type(node.value)),
                    item_type=state.item_type,
                    item_count=len(node.value),
                    size=round(copied),
                    is_copy=True,
                )
                holders.append(holder)
        return holders


def make_holder(
    name: Name | None,
    scope: Scope,
    *,
    container: str,
    item_type: str,
    size: int,
    items: int = 0,
    item_count: int = 0,
    has_graph: bool = False,
    device: str = "",
    is_copy: bool = False,
) -> dict[str, Any]:
    """Return the record of a holder; see `MemoryHolderRecord` of the schema."""
    line = 0 if name is None or is_copy else find_adding_line(name, scope)
    return {
        "name": "" if name is None else name.text,
        "kind": "" if name is None else name.kind,
        "owner": "" if name is None else name.owner,
        "path": "" if name is None else name.path,
        "file": "" if name is None else name.file,
        "line": line,
        "type": container,
        "item_type": item_type,
        "item_count": item_count,
        "items": items,
        "bytes": size,
        "has_graph": has_graph,
        "device": device,
        "is_copy": is_copy,
    }


def _growth(after: Counter[str], before: Counter[str]) -> list[dict[str, Any]]:
    """Return the types of which there are more than before."""
    return [
        {"type": name, "count": after[name], "growth": growth}
        for name, growth in (after - before).most_common(MAX_ROWS)
    ]


def count_graph(tensor: Any) -> int:
    """Count the nodes of the graph of a tensor, up to `MAX_GRAPH_NODES`."""
    torch: Any = sys.modules.get("torch")
    try:
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        with torch._C.DisableTorchFunction():
            pending = [base.grad_fn.__get__(tensor)]
        visited: dict[int, Any] = {}
        while pending and len(visited) < MAX_GRAPH_NODES:
            node = pending.pop()
            if node is None or id(node) in visited:
                continue
            visited[id(node)] = node
            if type(node).__module__ == "torch.autograd.function":  # a function of the job
                continue
            pending.extend(following for following, _ in node.next_functions)
        return len(visited)
    except (AttributeError, RuntimeError, TypeError):
        return 0


class MemoryUse:
    """Memory of this process in bytes; 0 where the system does not say."""

    __slots__ = ("anonymous", "private", "resident")

    def __init__(self, resident: int, anonymous: int, private: int) -> None:
        self.resident = resident
        self.anonymous = anonymous
        self.private = private


def read_memory() -> MemoryUse:
    """Read the memory of this process (proc_pid_smaps_rollup(5))."""
    try:
        descriptor = os.open("/proc/self/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except OSError:
        return MemoryUse(0, 0, 0)
    fields = {}
    for line in data.splitlines()[1:]:
        name, _, rest = line.partition(b":")
        words = rest.split()
        if words and words[0].isdigit():
            fields[name] = 1024 * int(words[0])
    private = fields.get(b"Private_Dirty", 0) + fields.get(b"Private_Clean", 0)
    return MemoryUse(fields.get(b"Rss", 0), fields.get(b"Anonymous", 0), private)
