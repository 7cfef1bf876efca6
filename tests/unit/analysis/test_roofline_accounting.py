"""Attribution of every kernel to one call."""

from __future__ import annotations

import random

import numpy as np

from stepscope.analysis.roofline.accounting import Account
from tests.support.roofline_columns import Launch, Op, accounted, mm


def by_name(account: Account) -> dict[str, int]:
    totals: dict[str, int] = {}
    for signature, busy_ns in zip(account.signature, account.busy_ns, strict=True):
        name = account.signatures[int(signature)].name
        totals[name] = totals.get(name, 0) + int(busy_ns)
    return totals


def test_wrapper_leaves_work_to_the_operator_inside() -> None:
    linear = Op("aten::linear", dims=[[8, 8], [8, 8], []], types=["float", "float", ""])
    linear.inside = [mm(5, (100, 30))]
    assert by_name(accounted(linear)) == {"aten::mm": 30}


def test_outermost_operator_with_a_model_gets_the_work() -> None:
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
    account = accounted(wrapper)
    assert by_name(account) == {"aten::_scaled_dot_product_flash_attention": 55}
    assert account.total_ns == 55


def test_operator_without_figures_leaves_work_to_operators_inside() -> None:
    outer = Op("aten::convolution", dims=None, inside=[mm(5, (100, 30))])
    assert by_name(accounted(outer)) == {"aten::mm": 30}


def test_operator_without_a_model_keeps_its_work() -> None:
    outer = Op("aten::unique", launches=[Launch("sort", 0, 5)], inside=[mm(5, (100, 30))])
    assert by_name(accounted(outer)) == {"aten::unique": 5, "aten::mm": 30}


def test_union_equals_brute_force() -> None:
    generator = random.Random(3)
    for _ in range(20):
        ops = [
            mm(i, *((generator.randrange(10**6), generator.randrange(1, 500)) for _ in range(size)))
            for i, size in enumerate(generator.choices([1, 1, 2, 5], k=30))
        ]
        expected = []
        for op in ops:
            covered = set[int]()
            for launch in op.launches:
                covered.update(range(launch.start, launch.start + launch.duration))
            expected.append(len(covered))
        assert accounted(*ops).busy_ns.tolist() == expected


def test_carry_over_and_unlinked_work_are_separate() -> None:
    account = accounted(
        mm(0, (100, 30)), orphans=[Launch("x", 200, 7)], carry_over=[Launch("y", 0, 100)]
    )
    assert (account.total_ns, account.unlinked_ns, account.carry_over_ns) == (37, 7, 100)


def test_collectives_are_not_in_the_total() -> None:
    collective = Op("record_param_comms", launches=[Launch("ncclDevKernel_AllReduce", 0, 500)])
    account = accounted(mm(0, (100, 30)), collective)
    assert (account.total_ns, account.communication_ns) == (30, 500)


def test_negative_durations_are_ignored() -> None:
    assert accounted(mm(0, (100, 30), (50, -40))).total_ns == 30


def test_signatures_distinguish_arguments() -> None:
    account = accounted(mm(0, (0, 5)), mm(1, (9, 5)), mm(2, (20, 5), size=32), mm(3, (40, 6)))
    sizes = [account.signatures[int(signature)].dims for signature in account.signature]
    assert sizes.count("[[64,64],[64,64]]") == 3
    assert np.bincount(account.signature).max() == 3


def test_without_devices_host_time_is_used() -> None:
    linear = Op("aten::linear", self_ns=7, dims=[[8, 8], [8, 8], []], types=["float", "float", ""])
    linear.inside = [mm(5)]
    account = accounted(linear, Op("aten::empty", self_ns=3))
    assert not account.on_device
    assert by_name(account) == {"aten::linear": 7, "aten::mm": 10, "aten::empty": 3}
    has_work = {signature.name: signature.work is not None for signature in account.signatures}
    assert has_work == {"aten::linear": False, "aten::mm": True, "aten::empty": False}


def test_empty_trace() -> None:
    account = accounted()
    assert account.total_ns == 0
    assert not len(account.signature)
