"""Two censuses of a process, and what has grown between them.

A census counts, at a step boundary, the items of containers, the objects of each type, the tensors
of each device and shape, the bytes of large values by name, and the private copies of shared pages.
It keeps numbers only. The comparison of a second one finds the containers that have grown, measures
some of their newest items, and names them (`holders`).
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from itertools import compress

from stepscope.capture.census import pages
from stepscope.capture.census.budget import STRIDE, Budget
from stepscope.capture.census.holders import Edge, Name, Referrers, Scope, Walk, name_node
from stepscope.capture.census.lines import find_adding_line
from stepscope.capture.census.memory import has_room_for_copies, read_memory
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

LIST_NS_PER_BLOCK = 25
"""Estimate of the time in which the collector lists its objects, for each allocated block: at most
65 ns for an object were measured, which has more than two blocks. The number of objects itself is
only known from the list."""
LIST_RATIO = 0.5
"""Share of the time of a census that the list of its objects may take."""
COUNT_RATIO = 0.7
"""Share of the time for what both censuses count …"""
WALK_RATIO, VALUE_RATIO, SCAN_RATIO = 0.4, 0.4, 0.9
"""… of which the walk along names, then values with a name, then all objects have these parts."""
MEMORY_RATIO = 0.1
MIN_ITEMS = 16
"""Smaller containers that no walk reaches are not compared."""
MAX_CONTAINERS = 100_000
CHUNK = 8192
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
SIZE_RATIO = 0.2
"""Share of the remaining time in which the items of one container are measured."""
MIN_VALUE_SHARE = 0.3
"""Share of the growth of the process that a value replaced by a larger one must have: two censuses
do not tell growth from values that vary, such as batches."""


_OBJECT_STAGES = ("objects", "shared", "list")
"""Stages without which not all objects were counted."""
_CONTAINER_TYPES = (list, dict, set, deque, OrderedDict, defaultdict)


class Census:
    """Counts at one step boundary.

    Args:
        dataset: data set of a worker; None in a process that trains.
        budget: time that it may take, with the comparison.
        is_worker: the process was forked to load data. Then only what is reachable by the names of
            the job is looked at: a look at each object would copy the pages that it shares.
    """

    def __init__(self, dataset: object | None, budget: Budget, *, is_worker: bool) -> None:
        self.t_ns = time.monotonic_ns()
        self.memory = read_memory(MEMORY_RATIO * budget.left_ns)
        self._budget = budget
        self._types = Types()
        self._objects = [] if is_worker else _list_objects(budget, self.memory.shared)
        self.object_count = len(self._objects)
        self.scanned_count = 0
        """Objects that were looked at."""
        part = budget.part(COUNT_RATIO)
        self._scope = Scope(dataset)
        self._walk = Walk(self._scope, self._types, part.part(WALK_RATIO))
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
        self._count_containers(
            {
                key: node.value
                for key, node in self._walk.nodes.items()
                if node.info.kind in CONTAINERS
            },
            part,
        )
        self._measure_values(part.part(VALUE_RATIO))
        self._count_containers(self._scan(part.part(SCAN_RATIO)), part)
        self._count_tensors(part)
        if is_worker and pages.can_read():
            self._read_pages(part)

    @property
    def left_out(self) -> list[str]:
        """Stages that were cut short."""
        return self._budget.left_out

    def forget_objects(self) -> None:
        """Keep the numbers only: no object of the job lives longer because of a census."""
        self._objects, self._tensors = [], []
        self._containers, self._named = {}, {}
        del self._walk, self._scope, self._types

    def _scan(self, budget: Budget) -> dict[int, Any]:
        """Count objects by type; collect the tensors, and return the containers by id. Loops are
        those of C."""
        counts: Counter[int] = Counter()
        classes: dict[int, type] = {}
        containers, tensors = set(map(id, _CONTAINER_TYPES)), set[int]()
        large: list[Any] = []
        for _ in budget.limit(range(0, self.object_count, CHUNK), "objects", 1):
            chunk = self._objects[-CHUNK:]  # the latest; they are let go while they are in a cache
            del self._objects[-CHUNK:]
            keys = list(map(id, map(type, chunk)))
            chunk_counts = Counter(keys)
            new = chunk_counts.keys() - classes.keys()
            if new:
                examples = dict(zip(keys, chunk))
                classes.update((key, type(examples[key])) for key in new)
                tensors.update(key for key in new if is_tensor_class(classes[key]))
            counts.update(chunk_counts)
            self.scanned_count += len(chunk)
            candidates = list(compress(chunk, map(containers.__contains__, keys)))
            large += compress(candidates, map(MIN_ITEMS.__le__, map(len, candidates)))
            if not tensors.isdisjoint(chunk_counts):
                self._tensors += compress(chunk, map(tensors.__contains__, keys))
        for key, count in counts.items():
            self.types[describe_type(classes[key])] += count
        self._objects = []
        if len(large) > MAX_CONTAINERS:  # the same of both censuses
            budget.leave_out("containers")
            part = len(large) // MAX_CONTAINERS + 1
            large = [v for v in large if len(v) >= 1024 or not id(v) // 16 % part]
        return dict(zip(map(id, large), large))

    def _count_containers(self, containers: dict[int, Any], budget: Budget) -> None:
        """Count the items of containers."""
        find = self._types.find
        for key, value in budget.limit(containers.items(), "containers"):
            self._containers[key] = value
            self.lengths[key] = length_of(value, find(value).kind), id(type(value))

    def _count_tensors(self, budget: Budget) -> None:
        """Count the tensors by device, shape and graph."""
        if len(self._tensors) > MAX_TENSORS:
            budget.leave_out("tensors")
        for value in budget.limit(self._tensors[-MAX_TENSORS:], "tensors", 16):
            external = self._types.find(value).external
            memory = external(value) if external is not None else None
            if memory is not None:
                group = memory.device or "cpu", memory.shape, memory.has_graph
                self.tensors[group] += 1
                self.tensor_bytes[group] = memory.bytes

    def _measure_values(self, budget: Budget) -> None:
        """Measure large values that a name holds directly, which may be replaced by larger ones."""
        graph_count = 0
        for node in budget.limit(self._walk.nodes.values(), "values", 16):
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
                count = count_graph(node.value, budget)
                if count is None:
                    continue
                self.graphs[key] = count
                self._named[key] = node, name
            if memory.bytes >= MIN_VALUE_BYTES:
                self.values[key] = memory.bytes
                self._named[key] = node, name

    def _read_pages(self, budget: Budget) -> None:
        sequences = [
            node
            for node in self._walk.nodes.values()
            if (type(node.value) is list or type(node.value) is tuple)
            and len(node.value) >= pages.MIN_ITEMS
        ]
        sequences.sort(key=lambda node: -len(node.value))
        for node in budget.limit(sequences[: pages.MAX_SEQUENCES], "pages", 1):
            if not budget.allows("pages", pages.NS_PER_ITEM * len(node.value)):
                continue
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
        # Counts of a part of the objects are not compared.
        left_out = {*first.left_out, *self.left_out}
        has_types = left_out.isdisjoint(_OBJECT_STAGES)
        has_tensors = has_types and "tensors" not in left_out
        return {
            "holders": holders[:MAX_HOLDERS],
            "types": _growth(self.types, first.types) if has_types else [],
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
                if has_tensors
            ],
        }

    def _compare_containers(self, first: Census, count: int) -> list[dict[str, Any]]:
        minimum = max(2, MIN_ITEMS_PER_STEP * count)
        ignored = {id(first.__dict__), id(self.__dict__), id(first.lengths), id(first.types)}
        growth: list[tuple[int, int]] = []
        for key, (length, cls) in self._budget.limit(self.lengths.items(), "containers"):
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
                newest = last_items(value, kind, min(items, SAMPLED_ITEMS))
                sizes = ItemSizes(newest, self._types, self._budget.part(SIZE_RATIO))
            except RuntimeError:  # another thread changes it
                continue
            measured.append((sizes.mean_bytes * items, items, key, sizes))
        measured.sort(key=lambda row: (-row[0], -row[1]))
        ignored = {id(self._containers), id(self.__dict__), id(growth), id(measured)}
        referrers = Referrers(
            self._scope, self._types, self._budget, object_count=self.object_count, ignored=ignored
        )
        return [
            holder
            for total, items, key, sizes in measured
            if (holder := self._describe(key, total, items, sizes, referrers)) is not None
        ]

    def _describe(
        self, key: int, total: float, items: int, sizes: ItemSizes, referrers: Referrers
    ) -> dict[str, Any] | None:
        node = self._walk.nodes.get(key)
        value = self._containers[key]
        if node is not None:
            name = name_node(node, self._scope)
            if name is None:
                return None
        else:
            name = referrers.name(value) if self.object_count else None
            if name is None and total < MIN_VALUE_BYTES:
                return None
        item_type = "" if sizes.type is None else describe_type(sizes.type)
        return make_holder(
            name,
            self._scope,
            self._budget,
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
                        self._budget,
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
                    self._budget,
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
    budget: Budget,
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
    line = 0 if name is None or is_copy else find_adding_line(name, scope, budget)
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


def count_graph(tensor: Any, budget: Budget) -> int | None:
    """Count the nodes of the graph of a tensor, up to `MAX_GRAPH_NODES`; None if there is no time
    to count them."""
    torch: Any = sys.modules.get("torch")
    try:
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        with torch._C.DisableTorchFunction():
            pending = [base.grad_fn.__get__(tensor)]
        visited: dict[int, Any] = {}
        while pending and len(visited) < MAX_GRAPH_NODES:
            if not len(visited) % STRIDE and not budget.allows("graphs"):
                return None
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


def _list_objects(budget: Budget, shared_bytes: int) -> list[Any]:
    """List the objects that the collector tracks; none if that takes too long, or if a reference to
    each would copy more pages that forked processes share than there is memory for."""
    if not has_room_for_copies(shared_bytes):
        budget.leave_out("shared")
        return []
    if not budget.part(LIST_RATIO).allows("list", LIST_NS_PER_BLOCK * sys.getallocatedblocks()):
        return []
    return gc.get_objects()
