"""Tensors whose parts are on several ranks: statistics of the whole tensor, or of each shard."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.spool import TENSORS_VARIABLE, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import check_against, read_rows

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from stepscope.capture.frameworks.pytorch.tensors.shards import (
    Joined,
    Part,
    ShardGroup,
    empty_row,
    join_parts,
)
from stepscope.capture.frameworks.pytorch.tensors.statistics import (
    COLUMNS,
    HostSummary,
    find_elements,
    histogram,
)

JOB = Path(__file__).with_name("jobs") / "sharded_training.py"
COLLECTIONS = ("weights", "biases", "gradients", "optimizer")
OF_CALLS = ("activations", "inputs", "outputs")
PARAMETERS = {"table.weight", "fc.weight", "fc.bias", "frozen.weight", "frozen.bias"} | {
    "head.weight", "scale", "unused",
}  # fmt: skip
TIMEOUT_S = 300


def train(
    spool: Spool, kind: str, out: Path, *, ranks: int = 2, plan: TensorPlan | None
) -> dict[str, np.ndarray[Any, Any]]:
    """Run the job, and return what it has saved."""
    text = "" if plan is None else plan.encode()
    spool.run_torch(JOB, kind, str(out), ranks=ranks, **{TENSORS_VARIABLE: text})
    return dict(np.load(out).items())


def make_plan(**fields: Any) -> TensorPlan:
    return TensorPlan(**{"collections": COLLECTIONS, "interval": 1, "joins_shards": True, **fields})


def test_statistics_of_whole_parameters(spool: Spool, tmp_path: Path) -> None:
    """With FSDP2 they equal those of the unsharded tensors, under the names of the unsharded model;
    the first rank records them. Losses and weights are the same bit for bit without recording."""
    saved = tmp_path / "with.npz"
    collections = (*COLLECTIONS, *OF_CALLS, "losses")
    observed = train(
        spool, "fsdp2", saved, plan=make_plan(collections=collections, histograms=True)
    )
    rows = read_rows(spool, "tensor_statistics")
    activations = [row for row in rows if row["tensor"] == "activation/fc"]
    assert len(activations) == 2 * 4  # each rank has its batch
    rows = [row for row in rows if row["collection"] in COLLECTIONS]
    losses = observed.pop("losses")
    np.savez(saved, **observed)
    check_against(saved, rows)
    assert len({row["process"] for row in rows}) == 1
    assert {row["tensor"] for row in rows if row["collection"] in COLLECTIONS[:2]} == PARAMETERS
    for row in rows:
        before = observed.get(f"{row['step'] - 1} {row['tensor']}")
        if row["collection"] in COLLECTIONS[:2] and before is not None:
            change = observed[f"{row['step']} {row['tensor']}"].astype(np.float64) - before
            assert row["update_l2"] == pytest.approx(np.sqrt((change**2).sum()), rel=1e-6)
    bins = read_rows(spool, "tensor_histograms")
    for key in ("0 fc.weight", "3 gradient/scale", "2 optimizer/exp_avg/head.weight"):
        key_bins = [row for row in bins if f"{row['step']} {row['tensor']}" == key]
        assert sum(row["count"] for row in key_bins) == observed[key].size
        for row in key_bins:
            is_inside = (observed[key] >= row["low"]) & (observed[key] < row["high"])
            if row["low"] > 0:
                assert row["count"] == is_inside.sum()
    facts = spool.drain().facts("sharded_tensors")
    assert [(fact["statistics"], fact["ranks"], fact["why"]) for fact in facts] == [
        ("whole", [0, 1], None)
    ] * 2

    alone = train(spool, "fsdp2", tmp_path / "without.npz", plan=None)
    assert alone.pop("losses").tobytes() == losses.tobytes()
    assert alone.keys() == observed.keys()
    for name, array in alone.items():
        assert observed[name].tobytes() == array.tobytes(), name


def test_by_default_each_rank_records_its_shard(spool: Spool, tmp_path: Path) -> None:
    observed = train(spool, "fsdp2", tmp_path / "out.npz", plan=make_plan(joins_shards=False))
    rows = [row for row in read_rows(spool, "tensor_statistics") if row["step"] == 1]
    assert {row["tensor"] for row in rows if row["collection"] in COLLECTIONS[:2]} == PARAMETERS
    shards = [row for row in rows if row["tensor"] == "fc.weight"]
    assert sorted(row["element_count"] for row in shards) == [2 * 6, 3 * 6]
    assert {row["shape"] for row in shards} == {"5x6"}
    total = sum(row["mean"] * row["element_count"] for row in shards)
    assert total == pytest.approx(observed["1 fc.weight"].sum(dtype=np.float64), rel=1e-6)
    assert not spool.drain().facts("sharded_tensors")


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("fsdp2", {"ranks": [0]}, "rank 1 records no tensors"),
        ("fsdp1", {}, "FullyShardedDataParallel keeps flat parameters, without shapes"),
    ],
)
def test_shards_that_cannot_be_joined(
    spool: Spool, tmp_path: Path, kind: str, fields: dict[str, Any], why: str
) -> None:
    """The statistics are those of shards, and the run says why."""
    observed = train(spool, kind, tmp_path / "out.npz", plan=make_plan(**fields))
    recorded = spool.drain()
    facts = recorded.facts("sharded_tensors")
    assert {(fact["statistics"], fact["why"]) for fact in facts} == {("shards", why)}
    assert set(recorded.notes) == {
        "statistics of sharded tensors are those of this rank's shards, not of whole tensors: "
        f"{why}"
    }
    rows = [row for row in read_rows(spool, "tensor_statistics") if row["step"] == 2]
    assert {row["tensor"] for row in rows if row["collection"] in COLLECTIONS[:2]} == PARAMETERS
    counts = [row["element_count"] for row in rows if row["tensor"] == "fc.weight"]
    assert max(counts) < 30
    if kind == "fsdp1":
        assert sum(counts) == 30
    assert np.isfinite(observed["losses"]).all()


@pytest.mark.parametrize(
    ("kind", "ranks", "writers"), [("hsdp", 4, 2), ("tensor", 2, 2)], ids=["replicas", "replicated"]
)
def test_parts_on_some_dimensions_of_a_mesh(
    spool: Spool, tmp_path: Path, kind: str, ranks: int, writers: int
) -> None:
    """Each replica of the model is recorded by the first of its ranks; a tensor that is replicated,
    or no DTensor, by every rank."""
    saved = tmp_path / "out.npz"
    observed = train(spool, kind, saved, ranks=ranks, plan=make_plan())
    observed.pop("losses")
    np.savez(saved, **observed)
    rows = read_rows(spool, "tensor_statistics")
    check_against(saved, rows)
    recorded = [row for row in rows if (row["step"], row["tensor"]) == (1, "fc.weight")]
    assert len(recorded) == (2 if kind == "hsdp" else 1)
    assert len({row["process"] for row in rows}) == writers
    facts = {tuple(fact["ranks"]) for fact in spool.drain().facts("sharded_tensors")}
    assert facts == ({(0, 1), (2, 3)} if kind == "hsdp" else {(0, 1)})


def draw_parts() -> Iterator[tuple[str, list[torch.Tensor]]]:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(5000, generator=generator) * 0.1 + 3
    yield "equal parts", [*values.split(1000)]
    yield "one element each", [*values[:4].split(1)]
    yield "part without elements", [values[:3], values[:0], values[3:9]]
    yield "several zeros", [torch.zeros(3), values[:2]]
    yield "far from zero", [1e8 + values[:700].double(), 1e8 - values[:9].double()]
    yield "part without finite elements", [torch.tensor([math.nan, math.inf]), values[:5]]
    yield "nothing finite", [torch.tensor([math.nan]), torch.tensor([-math.inf])]
    yield "product of too many", [values[:3000], values[3000:]]


PARTS = dict(draw_parts())


def test_a_loss_that_ranks_share(spool: Spool) -> None:
    """It is read only where that takes no communication: others may record nothing."""
    plan = TensorPlan(collections=("losses",))
    spool.run_torch(
        """
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
        mesh = init_device_mesh("cpu", (2,))
        for placement in (Shard(0), Replicate()):
            local = torch.ones(3, requires_grad=True)
            DTensor.from_local(local, mesh, [placement]).square().sum().backward()
        """,
        **{TENSORS_VARIABLE: plan.encode()},
    )
    losses = [record for record in spool.drain().records if record.table == "scalars"]
    assert [loss.value for loss in losses] == [3]


@pytest.mark.parametrize("name", PARTS)
def test_joined_statistics_equal_those_of_numpy(name: str) -> None:
    parts = PARTS[name]
    joined = dict(zip(COLUMNS, join_parts(summarize(parts)[:, None])[0].tolist(), strict=True))
    array = torch.cat(parts).double().numpy()
    finite = array[np.isfinite(array)]
    assert joined["element_count"] == array.size
    assert joined["nan_count"] == np.isnan(array).sum()
    assert joined["infinite_count"] == np.isinf(array).sum()
    assert joined["zero_count"] == (array == 0).sum()
    assert math.isnan(joined["update_square_sum"])
    expected = dict.fromkeys(("min", "max", "sum", "abs_sum", "deviation_square_sum"), math.nan)
    if finite.size:
        assert (joined["min"], joined["max"]) == (finite.min(), finite.max())
        expected = {
            "sum": math.fsum(finite),
            "abs_sum": math.fsum(np.abs(finite)),
            "deviation_square_sum": math.fsum((finite - finite.mean()) ** 2),
        }
    for column, number in expected.items():
        assert joined[column] == pytest.approx(number, rel=1e-6, abs=1e-12, nan_ok=True), column
    with np.errstate(over="ignore"):
        product = finite.prod() if finite.size and array.size <= 4096 else math.nan
    assert joined["product"] == pytest.approx(product, rel=1e-6, nan_ok=True)


def summarize(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return (part, statistic)."""
    rows = []
    for part in parts:
        elements = find_elements(part)
        empty = empty_row(torch.device("cpu"))
        rows.append(empty if elements is None else HostSummary().summarize(elements))
    return torch.tensor(rows, dtype=torch.float64)


Groups = Callable[[], tuple[ShardGroup, ShardGroup]]


@pytest.fixture
def make_groups() -> Groups:
    """Make the groups of two ranks, which meet in this process."""
    store = dist.HashStore()

    def connect(group: ShardGroup) -> Any:
        prefix = dist.PrefixStore(group.agreement, store)
        return dist.ProcessGroupGloo(prefix, group.index, 2, timedelta(seconds=60))

    def make() -> tuple[ShardGroup, ShardGroup]:
        first, second = (
            ShardGroup((3, 7), rank, agreement="plan", connect=connect) for rank in (3, 7)
        )
        return first, second

    return make


def part(step: int, values: torch.Tensor, identity: str = "weight (4,)") -> Part:
    elements = find_elements(values)
    assert elements is not None
    powers = histogram(elements)[None].int()
    return Part(step, step, identity, summarize([values]), powers)


def collect(group: ShardGroup, count: int) -> list[Joined]:
    rows: list[Joined] = []
    while len(rows) < count:
        rows += group.take()
    return rows


def test_ranks_meet_without_waiting(make_groups: Groups) -> None:
    """One rank is two steps ahead; the first one gets the rows of both."""
    first, second = make_groups()
    for step in range(3):
        first.submit(part(step, torch.full((2,), step + 1.0)))
    assert list(first.take()) == []
    for step in range(3):
        second.submit(part(step, torch.full((2,), 10.0 * step)))
    joined = collect(first, 3)
    assert [row.part.step for row in joined] == [0, 1, 2]
    sums = [row.values[0, COLUMNS.index("sum")].item() for row in joined if row.values is not None]
    assert sums == [2 * (step + 1) + 20 * step for step in range(3)]
    assert all(row.powers is not None and int(row.powers.sum()) == 4 for row in joined)
    assert all(row.values is None for row in collect(second, 3))


def test_a_step_that_one_rank_does_not_record(make_groups: Groups) -> None:
    """The shards of that step stay as they are; later steps are joined again."""
    first, second = make_groups()
    ones = torch.ones(2)
    for step in (0, 1, 2, 4):
        first.submit(part(step, ones))
    for step in (0, 2, 3, 4):
        second.submit(part(step, ones))
    counts = {
        row.part.step: None if row.values is None else row.values[0, 0].item()
        for row in collect(first, 4)
    }
    assert counts == {0: 4, 1: 2, 2: 4, 4: 4}
    counts = {
        row.part.step: None if row.values is None else row.values[0, 0].item()
        for row in collect(second, 4)
    }
    assert counts == {0: None, 2: None, 3: 2, 4: None}


def test_ranks_with_different_tensors(make_groups: Groups) -> None:
    groups = make_groups()
    for group, name in zip(groups, ("weight", "bias"), strict=True):
        group.submit(part(0, torch.ones(2), name))
        group.submit(part(1, torch.ones(2)))
    for group in groups:
        different, same = collect(group, 2)
        assert different.values is not None
        assert different.values[0, 0] == 2
        assert same.values is None or same.values[0, 0] == 4
        assert group.failure is None


def test_a_rank_that_does_not_come(make_groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the process waits a moment for it, and the shards stay as they are."""
    monkeypatch.setattr("stepscope.capture.frameworks.pytorch.tensors.shards.MAX_WAIT_S", 0.1)
    first, _ = make_groups()
    first.submit(part(0, torch.ones(2)))
    (row,) = first.finish()
    assert row.values is not None
    assert row.values[0, 0] == 2
    assert first.failure == "the process ended before the other ranks had sent theirs"


def test_ranks_that_are_too_far_apart(make_groups: Groups) -> None:
    first, _ = make_groups()
    for step in range(65):
        first.submit(part(step, torch.ones(2)))
    assert [row.part.step for row in first.take()] == list(range(65))
    assert first.failure == "the other ranks are more than 64 recorded steps behind"


def test_a_group_that_cannot_be_made() -> None:
    def fail(_: ShardGroup) -> Any:
        raise RuntimeError("connection refused\nbacktrace")

    group = ShardGroup((0, 1), 0, agreement="plan", connect=fail)
    group.submit(part(0, torch.ones(2)))
    (row,) = collect(group, 1)
    assert row.values is not None
    assert group.failure == "the ranks cannot exchange them: connection refused"


def test_a_connection_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows do not wait for it: hostnames of other nodes may lead nowhere."""
    monkeypatch.setattr(
        "stepscope.capture.frameworks.pytorch.tensors.shards.CONNECTION_TIMEOUT_S", 0.1
    )
    has_ended = threading.Event()
    group = ShardGroup((0, 1), 0, agreement="plan", connect=lambda _: has_ended.wait(TIMEOUT_S))
    group.submit(part(0, torch.ones(2)))
    (row,) = collect(group, 1)
    assert row.values is not None
    assert group.failure == "the ranks could not connect to each other"
    has_ended.set()


@pytest.mark.parametrize(
    ("agreement", "why"),
    [
        ("other plan", "rank 1 was told to record other tensors"),
        (None, "rank 1 took no part within 0 s"),
    ],
)
def test_ranks_that_record_other_tensors(
    agreement: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told apart by what they leave in the job's store, without a group."""
    monkeypatch.setattr(
        "stepscope.capture.frameworks.pytorch.tensors.shards.MEETING_TIMEOUT_S", 0.2
    )
    store = dist.HashStore()
    monkeypatch.setattr(
        "torch.distributed.distributed_c10d._get_default_store", lambda: Cloned(store)
    )
    if agreement is not None:
        ShardGroup((0, 1), 1, agreement=agreement)
    group = ShardGroup((0, 1), 0, agreement="plan")
    group.submit(part(0, torch.ones(2)))
    (row,) = collect(group, 1)
    assert row.values is not None
    assert group.failure == why


class Cloned:
    """Store of a job with one process."""

    def __init__(self, store: dist.Store) -> None:
        self._store = store

    def clone(self) -> dist.Store:
        return self._store
