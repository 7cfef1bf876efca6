"""Holders of growing memory: named as the user wrote them, without a call of code of the job."""

from __future__ import annotations

import functools
import gc
import queue
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from stepscope.capture.census import _Follower, _Pause, comparison, holders, memory, pages
from stepscope.capture.census.budget import Budget
from stepscope.capture.census.comparison import Census, count_graph
from stepscope.capture.census.holders import Edge, Name, Referrers, Scope, Walk, codes_of
from stepscope.capture.census.lines import find_adding_line
from stepscope.capture.census.objects import ItemSizes, Types

STEPS = 40


def make_census(dataset: object | None = None, budget: Budget | None = None) -> Census:
    """Take a census with time enough on a busy machine."""
    return Census(dataset, budget or Budget(60e9), is_worker=dataset is not None)


@pytest.fixture(autouse=True)
def _count_all_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave none out: the process of the tests has the modules and the data of many others."""
    monkeypatch.setattr(comparison, "MAX_CONTAINERS", 10_000_000)
    monkeypatch.setattr(holders, "MAX_OBJECTS", 10_000_000)


losses: list[bytes] = []
history: list[Any] = []


class Meter:
    class_notes: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []
        self.hooks: OrderedDict[int, Callable[[], int]] = OrderedDict()
        self.pale_batches: deque[bytes] = deque()
        self.unsent_parcels: queue.Queue[bytes] = queue.Queue()
        self.total = np.zeros(1 << 14)

    def update(self, step: int) -> None:
        self.values.append(np.full(1000, step))


class Slotted:
    __slots__ = ("slot_names",)

    def __init__(self) -> None:
        self.slot_names: set[str] = set()


@functools.cache
def load(step: int) -> bytes:
    return bytes(5000 + step)


def make_callback() -> Callable[[int], None]:
    rows: list[list[int]] = []

    def callback(step: int) -> None:
        rows.append([step] * 500)

    return callback


def measure(grow: Callable[[int], object], dataset: object | None = None) -> dict[str, Any]:
    first = make_census(dataset)
    first.forget_objects()
    for step in range(STEPS):
        grow(step)
    second = make_census(dataset)
    return second.compare(first, STEPS)


meter, slotted, callback = Meter(), Slotted(), make_callback()


def keep_loss(step: int) -> None:
    losses.append(bytes(3000 + step % 2))


def add_hook(step: int) -> None:
    meter.hooks[step] = functools.partial(int, step)


def add_batch(step: int) -> None:
    meter.pale_batches.append(bytes(2000 + step % 2))


def enqueue(step: int) -> None:
    meter.unsent_parcels.put(bytes(3000 + step % 2))


def note(step: int) -> None:
    Meter.class_notes.append(bytes(999 + step % 2))


def name_sample(step: int) -> None:
    slotted.slot_names.add(f"{step}" + "x" * 200)


GROW: dict[str, tuple[Callable[[int], object], str, str, float]] = {
    # name: what grows, kind, line that adds, bytes of an item
    "losses": (keep_loss, "global", "losses.append", 3000),
    "Meter.values": (Meter.update.__get__(meter), "attribute", "self.values.append", 8000),
    "Meter.hooks": (add_hook, "attribute", "meter.hooks[step] =", 0),
    "Meter.pale_batches": (add_batch, "attribute", "meter.pale_batches.append", 2000),
    "Meter.unsent_parcels": (enqueue, "attribute", "meter.unsent_parcels.put", 3000),
    "Meter.class_notes": (note, "class", "Meter.class_notes.append", 999),
    "Slotted.slot_names": (name_sample, "attribute", "slotted.slot_names.add", 200),
    "load": (load, "cache", "@functools.cache", 5000),
    "rows": (callback, "closure", "rows.append", 4000),
}


@pytest.mark.parametrize("name", GROW)
def test_growing_container_is_named_with_its_line(name: str) -> None:
    grow, kind, text, item_bytes = GROW[name]
    growth = measure(grow)
    by_name = {holder["name"]: holder for holder in growth["holders"]}
    assert name in by_name, growth
    holder = by_name[name]
    assert (holder["kind"], holder["items"]) == (kind, STEPS)
    assert holder["file"] == __file__
    assert holder["line"], "code of this process reads the name elsewhere"
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[holder["line"] - 1]
    assert text in line
    assert holder["bytes"] >= STEPS * item_bytes
    assert holder["bytes"] < STEPS * (item_bytes + 600)


def test_variable_of_a_running_function_is_named_and_lives_no_longer() -> None:
    def grow(step: int) -> None:
        rows[step].append(step)
        rows[step, "more"] = [bytes(500)]

    rows: defaultdict[Any, list[Any]] = defaultdict(list)
    growth = measure(grow)
    (holder,) = (h for h in growth["holders"] if h["name"] == "rows")
    assert holder["kind"] in {"local", "closure"}
    assert holder["items"] == 2 * STEPS
    references = sys.getrefcount(rows)
    make_census().forget_objects()
    assert sys.getrefcount(rows) == references


def test_value_that_is_replaced_by_a_larger_one_is_named() -> None:
    def grow(step: int) -> None:
        meter.total = np.concatenate([meter.total, np.zeros(1 << 15)])

    growth = measure(grow)
    (holder,) = (h for h in growth["holders"] if h["name"] == "Meter.total")
    assert holder["type"] == "numpy.ndarray"
    assert holder["bytes"] == STEPS * 8 << 15
    assert holder["items"] == 0


def test_containers_that_do_not_grow_are_no_holders() -> None:
    latest: deque[bytes] = deque(maxlen=64)
    for step in range(64):
        latest.append(bytes(step))
    growth = measure(lambda step: latest.append(bytes(5000)))
    assert "latest" not in {holder["name"] for holder in growth["holders"]}


class HostileMeta(type):
    def __hash__(cls) -> int:
        raise AssertionError("hash of a class")

    def __eq__(cls, _: object) -> bool:
        raise AssertionError("eq of a class")

    def __instancecheck__(cls, _: object) -> bool:
        raise AssertionError("instance check")

    def __subclasscheck__(cls, _: object) -> bool:
        raise AssertionError("subclass check")

    def __getattribute__(cls, name: str) -> Any:
        if name.startswith("__") and not is_building[0]:
            raise AssertionError(f"{name} of a class")
        return super().__getattribute__(name)


is_building = [True]


def fail(*_: Any, **__: Any) -> Any:
    raise AssertionError("code of the job was called")


HOSTILE: dict[str, Any] = dict.fromkeys(
    [
        *("__repr__", "__len__", "__hash__", "__eq__", "__getattribute__", "__getattr__"),
        *("__sizeof__", "__iter__", "__bool__", "__dir__", "__reversed__", "__getitem__"),
        *("__contains__", "__str__", "__array__", "__reduce__", "items", "values"),
    ],
    fail,
)


@pytest.fixture
def hostile_objects() -> Iterator[list[Any]]:
    is_building[0] = True
    calls = {**HOSTILE, "__class__": property(fail), "__dict__": property(fail)}
    plain = HostileMeta("Hostile", (), calls)
    names = [n for n in HOSTILE if n not in {"__getattr__"}]
    mapping = HostileMeta("HostileDict", (dict,), dict.fromkeys(names, fail))
    sequence = HostileMeta("HostileList", (list,), dict.fromkeys(names, fail))
    objects: list[Any] = [object.__new__(plain), dict.__new__(mapping), list.__new__(sequence)]
    is_building[0] = False
    yield objects
    is_building[0] = True


def test_no_code_of_hostile_objects_is_called(hostile_objects: list[Any]) -> None:
    plain, mapping, sequence = hostile_objects

    def grow(step: int) -> None:
        history.append((plain, mapping))
        dict.__setitem__(mapping, step, plain)
        list.append(sequence, mapping)

    growth = measure(grow)
    assert {h["name"]: h["items"] for h in growth["holders"]}["history"] == STEPS
    history.clear()


def test_container_that_only_a_library_reaches_is_named_by_its_referrers() -> None:
    import types

    scope = Scope()
    library = types.ModuleType("library")
    owner = Meter()
    vars(owner)  # its attributes have a dictionary
    library.__dict__["registry"] = [owner]
    referrers = Referrers(scope, Types(), Budget(60e9), object_count=1, ignored=set())
    name = referrers.name(owner.values)
    assert name is not None
    assert (name.text, name.kind) == ("Meter.values", "attribute")


class Images:
    def __init__(self) -> None:
        self.cache: dict[int, bytes] = {}


def test_worker_is_looked_at_by_its_data_set_only() -> None:
    images = Images()
    first = make_census(images)
    first.forget_objects()
    for step in range(STEPS):
        images.cache[step] = bytes(10_000)
    second = make_census(images)
    growth = second.compare(first, STEPS)
    assert second.object_count == 0
    (holder,) = (h for h in growth["holders"] if h["name"] == "Images.cache")
    assert holder["items"] == STEPS
    assert holder["bytes"] >= STEPS * 10_000


@pytest.mark.skipif(not pages.can_read(), reason="items of lists are elsewhere in this build")
def test_copies_of_shared_pages_are_told_from_new_objects() -> None:
    import multiprocessing

    paths = [f"{i:0100d}" for i in range(200_000)]
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_read_half, args=(paths, writer))
    child.start()
    before, after, item_type, total = reader.recv()
    child.join()
    assert item_type == "str"
    assert total == pytest.approx(200_000 * 160, rel=0.1)  # 149 bytes in blocks of 16
    assert before < 0.05
    assert after - before == pytest.approx(0.5, abs=0.1)


def _read_half(paths: list[str], writer: Any) -> None:
    before = pages.read_pages(paths)
    references = [paths[i] for i in range(100_000)]
    after = pages.read_pages(paths)
    assert before is not None
    assert after is not None
    assert references
    writer.send((before.exclusive_ratio, after.exclusive_ratio, after.item_type, after.total_bytes))


class Clock:
    """Clock that the test advances: by one nanosecond a look, up to the end of the time."""

    def __init__(self, looks: int) -> None:
        self.now_ns = 0
        self.looks = looks

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def make_budget(self) -> Budget:
        return Budget(self.looks, self)


def chain_graph() -> Any:
    import torch

    value = torch.ones(1, requires_grad=True)
    for _ in range(1000):
        value = value + 1
    return value


class Dataset:
    def __init__(self) -> None:
        self.paths = [f"{i:0100d}" for i in range(pages.MIN_ITEMS)]


def test_each_stage_ends_when_the_time_is_spent() -> None:
    spent = Clock(0).make_budget()
    scope = Scope()
    walk = Walk(scope, Types(), spent)
    assert (walk.scope, spent.left_out) == (scope, ["names"])
    sizes = ItemSizes([bytes(100)], Types(), spent)
    assert (sizes.count, sizes.mean_bytes) == (0, 0)
    name = Name(Edge.ATTRIBUTE, "values", "Meter", codes=list(codes_of(Meter)), path="", file="")
    assert find_adding_line(name, scope, Budget(60e9)) > 0
    assert find_adding_line(name, scope, spent) == 0
    graph = chain_graph()
    assert count_graph(graph, Budget(60e9)) == 1001
    assert count_graph(graph, spent) is None
    referrers = Referrers(scope, Types(), spent, object_count=1, ignored=set())
    assert referrers.name(meter.values) is None
    assert spent.left_out == ["names", "sizes", "lines", "graphs", "referrers"]
    trainer = make_census(budget=Clock(0).make_budget())
    assert (trainer.object_count, trainer.lengths, trainer.values) == (0, {}, {})
    assert {"list", "names", "containers", "values"} >= set(trainer.left_out) >= {"list", "names"}
    assert make_census(Dataset(), Clock(0).make_budget()).pages == {}


def test_search_for_referrers_that_would_take_too_long_is_not_begun() -> None:
    budget = Budget(1e9)
    referrers = Referrers(Scope(), Types(), budget, object_count=10**9, ignored=set())
    assert referrers.name(meter.values) is None
    assert budget.left_out == ["referrers"]


@pytest.mark.parametrize("looks", [3, 10, 30, 100, 300, 1000])
def test_census_that_is_cut_short_anywhere_counts_nothing_wrong(looks: int) -> None:
    first = make_census(budget=Budget(60e9))
    first.forget_objects()
    for step in range(STEPS):
        keep_loss(step)
    second = make_census(budget=Clock(looks).make_budget())
    growth = second.compare(first, STEPS)
    assert second.scanned_count <= second.object_count
    assert second.left_out
    if not {"objects", "list"}.isdisjoint(second.left_out):
        assert growth["types"] == growth["tensors"] == []
    for holder in growth["holders"]:
        if holder["name"] == "losses":
            assert holder["items"] == STEPS


def test_objects_are_not_listed_where_copies_of_shared_pages_could_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_read_available", lambda: 300 << 20)
    assert memory.has_room_for_copies(60 << 20)
    assert memory.has_room_for_copies(150 << 20)
    assert not memory.has_room_for_copies(151 << 20)
    monkeypatch.setattr(comparison, "has_room_for_copies", lambda _: False)
    census = make_census()
    assert census.object_count == 0
    assert "shared" in census.left_out  # in a large process also some of the names
    assert census.lengths  # of what has a name


def test_memory_of_this_process_is_read_in_either_way() -> None:
    detailed, plain = memory.read_memory(1e12), memory.read_memory(0)
    assert detailed.anonymous == pytest.approx(plain.anonymous, rel=0.2)
    assert plain.shared == plain.anonymous
    assert detailed.shared <= detailed.anonymous
    assert 0 < detailed.private <= detailed.resident


def test_collector_is_left_as_it_was(recording: Any) -> None:
    from stepscope import spool

    spool.reserve_censuses(str(recording.path))
    follower = _Follower()
    follower.follow()
    number = spool.request_census(str(recording.path))
    assert number == 1
    thresholds = gc.get_threshold()
    gc.disable()
    follower.follow()
    assert not gc.isenabled()
    gc.enable()
    assert gc.get_threshold() == thresholds
    assert follower._first is not None
    follower._first.t_ns -= 10**12  # long ago: two steps are enough
    for step in range(2):
        history.append(step)
        follower.follow()
    assert gc.isenabled()
    assert gc.get_threshold() == thresholds
    with _Pause():  # another thread changes it meanwhile
        gc.set_threshold(701)
    assert gc.get_threshold()[0] == 701
    gc.set_threshold(*thresholds)
    (fact,) = recording.drain().facts("memory_census")
    assert (fact["request"], fact["unit"], fact["count"]) == (1, "step", 2)
    assert spool.request_census(str(recording.path / "missing")) is None
