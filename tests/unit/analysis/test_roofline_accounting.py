"""Every kernel once, under one call."""

from __future__ import annotations

import random

import numpy as np

from stepscope.analysis.roofline.accounting import Account
from tests.support.roofline_columns import Launch, Op, accounted, mm


def by_name(found: Account) -> dict[str, int]:
    totals: dict[str, int] = {}
    for place, busy in zip(found.signature, found.busy_ns, strict=True):
        name = found.signatures[int(place)].name
        totals[name] = totals.get(name, 0) + int(busy)
    return totals


def test_a_wrapper_leaves_the_work_to_the_operator_inside() -> None:
    linear = Op("aten::linear", dims=[[8, 8], [8, 8], []], types=["float", "float", ""])
    linear.inside = [mm(5, (100, 30))]
    assert by_name(accounted(linear)) == {"aten::mm": 30}


def test_the_outermost_operator_with_a_model_takes_it() -> None:
    q, cache = [2, 4, 16, 8], "c10::BFloat16"
    inner = Op("aten::_flash_attention_forward", launches=[Launch("flash_fwd", 100, 50)])
    outer = Op(
        "aten::_scaled_dot_product_flash_attention",
        dims=[q, q, q, [], [], [], []],
        types=[cache, cache, cache, "Scalar", "Scalar", "Scalar", ""],
        values=["", "", "", "0.", "True", "False", ""],
        inside=[inner, Op("aten::fill_", launches=[Launch("fill", 90, 5)])],
    )
    wrapper = Op("aten::scaled_dot_product_attention", inside=[outer])
    found = accounted(wrapper)
    assert by_name(found) == {"aten::_scaled_dot_product_flash_attention": 55}
    assert found.total_ns == 55


def test_an_operator_without_figures_leaves_it_to_those_inside() -> None:
    outer = Op("aten::convolution", dims=None, inside=[mm(5, (100, 30))])
    assert by_name(accounted(outer)) == {"aten::mm": 30}


def test_an_operator_without_a_model_is_accounted_itself() -> None:
    outer = Op("aten::unique", launches=[Launch("sort", 0, 5)], inside=[mm(5, (100, 30))])
    assert by_name(accounted(outer)) == {"aten::unique": 5, "aten::mm": 30}


def test_time_of_a_call_is_the_union_of_what_it_launched() -> None:
    overlapping = mm(0, (100, 50), (120, 50), (300, 10))
    apart = mm(1, (120, 20))  # beside the first call: each call has its own union
    found = accounted(overlapping, apart)
    assert sorted(found.busy_ns.tolist()) == [20, 80]


def test_the_union_equals_a_brute_force_one() -> None:
    chance = random.Random(3)
    for _ in range(20):
        ops = [
            mm(i, *((chance.randrange(10**6), chance.randrange(1, 500)) for _ in range(size)))
            for i, size in enumerate(chance.choices([1, 1, 2, 5], k=30))
        ]
        expected = []
        for op in ops:
            covered = set[int]()
            for each in op.launches:
                covered.update(range(each.start, each.start + each.duration))
            expected.append(len(covered))
        assert accounted(*ops).busy_ns.tolist() == expected


def test_work_from_before_the_window_and_of_unknown_operators_is_told_apart() -> None:
    found = accounted(
        mm(0, (100, 30)), orphans=[Launch("x", 200, 7)], carried=[Launch("y", 0, 100)]
    )
    assert (found.total_ns, found.unlinked_ns, found.carry_over_ns) == (37, 7, 100)


def test_collectives_are_no_part_of_the_total() -> None:
    collective = Op("record_param_comms", launches=[Launch("ncclDevKernel_AllReduce", 0, 500)])
    found = accounted(mm(0, (100, 30)), collective)
    assert (found.total_ns, found.communication_ns) == (30, 500)


def test_impossible_durations_are_left_out() -> None:
    assert accounted(mm(0, (100, 30), (50, -40))).total_ns == 30


def test_signatures_tell_arguments_apart() -> None:
    found = accounted(mm(0, (0, 5)), mm(1, (9, 5)), mm(2, (20, 5), size=32), mm(3, (40, 6)))
    sizes = [found.signatures[int(place)].dims for place in found.signature]
    assert sizes.count("[[64,64],[64,64]]") == 3
    assert np.bincount(found.signature).max() == 3


def test_without_devices_host_time_takes_the_place() -> None:
    linear = Op("aten::linear", own=7, dims=[[8, 8], [8, 8], []], types=["float", "float", ""])
    linear.inside = [mm(5)]
    found = accounted(linear, Op("aten::empty", own=3))
    assert not found.on_device
    assert by_name(found) == {"aten::linear": 7, "aten::mm": 10, "aten::empty": 3}
    work = {each.name: each.work is not None for each in found.signatures}
    assert work == {"aten::linear": False, "aten::mm": True, "aten::empty": False}


def test_nothing_at_all() -> None:
    found = accounted()
    assert found.total_ns == 0
    assert not len(found.signature)
