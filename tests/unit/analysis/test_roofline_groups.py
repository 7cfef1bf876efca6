"""Attribution of kernels to calls, and calls against the roofline."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stepscope.analysis.roofline.accounting import Account
from stepscope.analysis.roofline.groups import HOST_COPY_REASON, RooflineGroup, group_calls
from stepscope.analysis.roofline.peaks import Peaks
from stepscope.analysis.roofline.utilization import Utilization, measure_step_utilization
from stepscope.analysis.trace_steps.trace_steps import TraceSteps
from stepscope.intervals import Intervals
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


FLOPS = 2 * 64**3
BYTES = 4 * 3 * 64**2


def peaks(bandwidth: float | None = 1e9, **rates: float) -> Peaks:
    return Peaks(
        name="d",
        source="s",
        bytes_per_s=bandwidth,
        flops_per_s=rates or {"fp32": 1e9, "tf32": 8e9},  # type: ignore[arg-type]
    )


def only(account: Account, device: Peaks | None) -> RooflineGroup:
    (group,) = group_calls(account, device)
    return group


def test_achieved_rates_and_shares() -> None:
    took = 2 * FLOPS
    group = only(accounted(mm(0, (0, took)), mm(1, (took, 3 * took))), peaks())
    assert (group.calls, group.device_ns) == (2, 4 * took)
    assert (group.call_flop, group.call_bytes) == (FLOPS, BYTES)
    assert group.achieved_flop_per_s == pytest.approx(2 * FLOPS / (4 * took) * 1e9)
    assert group.mean_of_calls_flop_per_s == pytest.approx((0.5 + 0.5 / 3) / 2 * 1e9)
    assert group.intensity_flop_per_byte == pytest.approx(FLOPS / BYTES)
    assert (group.bound, group.roofline_ns) == ("compute", 2 * FLOPS)
    assert group.roofline_ratio == pytest.approx(0.25)
    assert group.peak_compute_ratio == pytest.approx(0.25)
    assert group.peak_bandwidth_ratio == pytest.approx(2 * BYTES / (4 * took))
    assert group.lost_ns == 4 * took - 2 * FLOPS
    assert group.anomaly is None


def test_slow_memory_is_the_bound() -> None:
    group = only(accounted(mm(0, (0, 10 * FLOPS))), peaks(bandwidth=1e7))
    assert group.bound == "memory"
    assert group.roofline_ns == pytest.approx(100 * BYTES)


def test_impossible_rates_are_flagged() -> None:
    device = peaks()
    fast = only(accounted(mm(0, (0, FLOPS // 2))), device)
    assert fast.anomaly is not None
    assert fast.roofline_ratio == pytest.approx(2)
    assert fast.lost_ns == 0
    assert only(accounted(mm(0, (0, round(FLOPS / 1.09)))), device).anomaly is None


def test_an_unknown_device_has_rates_but_no_shares() -> None:
    group = only(accounted(mm(0, (0, 100))), None)
    assert group.achieved_flop_per_s is not None
    assert group.roofline_ratio is None
    assert group.bound is None
    without_precision = only(accounted(mm(0, (0, 100), type_="c10::Half")), peaks())
    assert without_precision.roofline_ratio is None


def test_fp32_products_by_tf32_kernels() -> None:
    op = mm(0)
    op.launches = [Launch("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", 0, FLOPS)]
    group = only(accounted(op), peaks())
    assert group.precision == "tf32"
    assert group.peak_compute_ratio == pytest.approx(1 / 8)


def test_copies_to_the_host_are_not_bound_by_memory() -> None:
    def copy(kernel: str) -> Op:
        launch = Launch(kernel, 0, 100, copied=True)
        arguments = {"dims": [[8], [8], []], "types": ["float", "float", "Scalar"]}
        return Op("aten::copy_", values=["", "", "False"], launches=[launch], **arguments)  # type: ignore[arg-type]

    groups = group_calls(
        accounted(copy("Memcpy DtoD (Device -> Device)"), copy("Memcpy HtoD (Pinned -> Device)")),
        peaks(),
    )
    assert {group.reason for group in groups} == {None, HOST_COPY_REASON}
    (to_host,) = [group for group in groups if group.reason]
    assert to_host.call_bytes is None


def test_sorted_by_time_without_collectives() -> None:
    nccl = Op("record_param_comms", launches=[Launch("ncclDevKernel_AllReduce", 0, 500)])
    groups = group_calls(accounted(nccl, mm(0, (0, 5)), mm(1, (9, 50), size=32)), peaks())
    assert [group.device_ns for group in groups] == [50, 5]


def steps(*ranges: tuple[int, int, int]) -> TraceSteps:
    """Host start, host end, end of the device work."""
    host = Intervals(*(np.array([step[i] for step in ranges], dtype=np.int64) for i in (0, 1)))
    end = np.array([step[2] for step in ranges], dtype=np.int64)
    return TraceSteps(
        names=[str(i) for i in range(len(ranges))],
        host=host,
        extent=Intervals(host.start, end),
        device_work_count=np.ones(len(ranges), dtype=np.int64),
        cut_off=[],
    )


def use(
    account: Account, ranges: TraceSteps, device: Peaks | None = None, count: int = 1
) -> Utilization:
    return measure_step_utilization(account, ranges, peaks=device or peaks(), device_count=count)


def test_each_step_counts_the_calls_started_in_it() -> None:
    account = accounted(mm(10, (0, 5)), mm(20, (9, 5)), mm(110, (200, 5)), mm(250, (300, 5)))
    shares = use(account, steps((0, 100, 8 * FLOPS), (100, 200, 100 + 2 * FLOPS)))
    assert [step.matrix_flop for step in shares.steps] == [2 * FLOPS, FLOPS]
    assert [step.mfu_ratio for step in shares.steps] == pytest.approx([0.25, 0.5])
    assert shares.precision == "fp32"
    assert shares.modelled_ratio == 1
    two = use(account, steps((0, 100, 8 * FLOPS)), count=2)
    assert two.steps[0].mfu_ratio == pytest.approx(0.125)


def test_the_precision_of_most_operations_decides() -> None:
    account = accounted(
        mm(0, (0, 5)), mm(1, (9, 5), size=256, type_="c10::BFloat16"), mm(2, (20, 5))
    )
    shares = use(account, steps((0, 100, 100)), peaks(bf16=5e9))
    assert (shares.precision, shares.peak_flop_per_s) == ("bf16", 5e9)
    unknown = use(account, steps((0, 100, 100)), peaks(fp32=1e9))
    assert unknown.steps[0].mfu_ratio is None


def test_matrix_operators_without_figures_lower_the_modelled_ratio() -> None:
    blind = Op("aten::cudnn_convolution", launches=[Launch("conv", 50, 15)])
    shares = use(accounted(mm(0, (0, 5)), blind), steps((0, 100, 100)))
    assert shares.modelled_ratio == pytest.approx(0.25)


def test_elementwise_work_is_not_a_matrix_product() -> None:
    add = Op("aten::neg", dims=[[8]], types=["float"], launches=[Launch("neg", 0, 5)])
    shares = use(accounted(add), steps((0, 100, 100)))
    assert shares.precision is None
    assert shares.modelled_ratio is None
    assert [step.mfu_ratio for step in shares.steps] == [None]
