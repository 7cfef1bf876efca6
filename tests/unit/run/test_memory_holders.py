"""Holders of memory from the facts of processes: rates, shares, the rest of C++, fixes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.job.census import describe_census
from stepscope.run import Run, read_memory_censuses, read_memory_holders, recommend
from stepscope.testing import RunBuilder

MIB = 1 << 20
LOSSES = {
    "name": "history",
    "kind": "global",
    "owner": "__main__",
    "file": "/job/train.py",
    "line": 13,
    "type": "list",
    "item_type": "torch.Tensor",
    "item_count": 150,
    "items": 100,
    "bytes": 12_000,
    "has_graph": True,
}
PATHS = {
    "name": "Images.paths",
    "kind": "attribute",
    "owner": "Images",
    "file": "/job/train.py",
    "type": "list",
    "item_type": "str",
    "item_count": 1_500_000,
    "bytes": 25 * MIB,
    "is_copy": True,
}


@pytest.fixture
def run_with_facts(tmp_path: Path) -> Callable[[list[dict[str, Any]]], Run]:
    def make(facts: list[dict[str, Any]]) -> Run:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        builder = RunBuilder(tmp_path / "run")
        builder.rank(0).info.facts.extend(facts)
        return builder.open()

    return make


def census(holders: list[dict[str, Any]], growth: int, **fields: Any) -> dict[str, Any]:
    return {
        "fact": "memory_census",
        "request": 1,
        "unit": "step",
        "count": 100,
        "duration_ns": 2_000_000_000,
        "pauses_ns": [100_000_000, 150_000_000],
        "object_count": 300_000,
        "is_sampled": False,
        "resident_bytes": 900 * MIB,
        "anonymous_growth_bytes": growth,
        "private_growth_bytes": growth,
        "holders": holders,
        **fields,
    }


def test_growth_that_no_container_explains_is_that_of_the_only_one_with_graphs(
    run_with_facts: Any,
) -> None:
    run = run_with_facts([census([LOSSES], 160 * MIB)])
    (holder,) = read_memory_holders(run)
    assert holder.bytes_per_step == 1.6 * MIB
    assert (holder.share_ratio, holder.is_estimate, holder.items_per_step) == (1, True, 1)
    assert recommend(holder) == (
        "Keep loss.item() or tensor.detach() in history, not the tensor with its graph."
    )
    large = {**LOSSES, "name": "outputs", "bytes": 100 * 8 * MIB}
    (outputs,) = read_memory_holders(run_with_facts([census([large], 1240 * MIB)]))
    assert (outputs.item_bytes_per_step, outputs.bytes_per_step) == (8 * MIB, 12.4 * MIB)
    assert recommend(outputs) == (
        "The tensors themselves are 8 MiB a step, which detach() does not free: keep numbers, such "
        "as loss.item(), in outputs, or clear it after use."
    )
    (account,) = read_memory_censuses(run)
    assert account.native_ratio == 0
    first, line, _ = describe_census(account)
    assert first.endswith(": 1.6 MiB a step, over 100 steps; paused for 250 ms")
    assert line == (
        "  history (global, train.py:13): 1 Tensor a step with the graph that computed it, "
        "about 1.6 MiB a step, 100% of what its process grew by meanwhile"
    )


def test_two_holders_with_graphs_leave_the_rest_native(run_with_facts: Any) -> None:
    holders = [LOSSES, {**LOSSES, "name": "outputs", "bytes": 40 * MIB}]
    (account,) = read_memory_censuses(run_with_facts([census(holders, 160 * MIB)]))
    assert [holder.is_estimate for holder in account.holders] == [False, False]
    assert account.native_ratio == pytest.approx(0.75, abs=0.001)


def test_copies_of_shared_pages_are_told_from_growth(run_with_facts: Any) -> None:
    fact = census([PATHS], 100 * MIB, unit="batch", object_count=0)
    (account,) = read_memory_censuses(run_with_facts([fact]))
    (holder,) = account.holders
    assert (holder.share_ratio, holder.bytes_per_step) == (0.25, 0.25 * MIB)
    _, line, fix, native = describe_census(account)
    assert line == (
        "  Images.paths (train.py): copies of shared pages of its 1,500,000 str objects, "
        "256 KiB a batch, 25% of what its process grew by meanwhile"
    )
    assert fix.strip().startswith("Keep Images.paths in an array (numpy, torch or Arrow) instead")
    assert native == "  native, not in a container: 75% of the growth"


def test_nothing_grows(run_with_facts: Any) -> None:
    (account,) = read_memory_censuses(run_with_facts([census([], 0)]))
    assert account.native_ratio is None
    assert list(describe_census(account))[1:] == ["  No container of the job grows."]


def test_what_a_census_left_out_is_said(run_with_facts: Any) -> None:
    def note(*left_out: str, **fields: int) -> str:
        fact = census([], 0, left_out=list(left_out), **fields)
        *_, last = describe_census(read_memory_censuses(run_with_facts([fact]))[0])
        return last.strip()

    assert note("objects", "lines", scanned_count=200_000) == (
        "The census stopped after 200,000 of 300,000 objects. The census had no time to find the "
        "lines that add to a container."
    )
    assert note("shared", shared_bytes=4096 * MIB) == (
        "The census looked only at what has a name: a look at all objects could have copied 4 GiB "
        "of pages that forked processes share."
    )
    assert note("list").endswith("there are too many objects for its pause.")
    assert note(scanned_count=300_000, shared_bytes=100 * MIB) == (
        "It may have copied up to 100 MiB of pages that forked processes share."
    )
