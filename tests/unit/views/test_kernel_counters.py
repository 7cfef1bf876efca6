"""Hardware counters of kernels: values by kernel and by operator, FLOPs, and what is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.run import Run
from stepscope.views import VIEWS, ViewOptions
from tests.support.kineto_files import Event, kernel, launch, op, span, trace

ADD, MUL, FMA = (
    f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum" for op in ("add", "mul", "fma")
)
BYTES, ACTIVE = "dram__bytes_read.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"


def counted(position: int, name: str, values: Mapping[str, float], device: int = 0) -> Event:
    """Return a range as Kineto writes it: of the same length for every kernel, in their order."""
    start = 1_000 + position * 50_000
    return span("cuda_profiler_range", name, start, 50_000, pid=device, tid=0, args=values)


def host() -> list[Event]:
    """Return linear, which launches two kernels through addmm, and relu, which launches one."""
    return [
        op("aten::linear", 1_000, 4_000),
        op("aten::addmm", 1_500, 3_000),
        launch(2_000, 500, 1),
        launch(3_000, 500, 2),
        launch(4_700, 100, 9, name="cudaMemcpyAsync"),
        op("aten::relu", 6_000, 1_000),
        launch(6_200, 100, 3, name="cuLaunchKernelEx", category="cuda_driver"),
    ]


def ranges() -> list[Event]:
    """Return the counters of two gemms and a relu."""
    return [
        counted(0, "gemm", {ADD: 10, MUL: 3, FMA: 1_000, BYTES: 4_096, ACTIVE: 50.0}),
        counted(1, "gemm", {ADD: 0, MUL: 0, FMA: 3_000, BYTES: 0, ACTIVE: 30.5}),
        counted(2, "relu", {ADD: 7, MUL: 0, FMA: 0, BYTES: 1_024}),
    ]


Imported = Callable[..., Run]


def show(imported: Imported, *events: Event, **options: Any) -> Any:
    run = imported(trace=trace(*events))
    (shown,) = VIEWS["kernel-counters"](run, ViewOptions(**options)).traces  # type: ignore[attr-defined]
    return shown


def counter(shown: Any, name: str) -> Any:
    (row,) = (row for row in shown.counters if row.name == name)
    return row


def by_name(rows: Any, *fields: str) -> dict[str, tuple[Any, ...]]:
    return {row.name: tuple(getattr(row, field) for field in fields) for row in rows}


def test_values_by_kernel_and_launching_operator(imported: Imported) -> None:
    shown = show(imported, *host(), *ranges())
    assert shown.measured_count == 3
    read = counter(shown, BYTES)
    values = ("measured_count", "total", "mean", "min", "max")
    assert (read.unit, read.measured_count, read.total) == ("bytes", 3, 5_120)
    assert by_name(read.kernels, *values) == {
        "gemm": (2, 4_096, 2_048, 0, 4_096),
        "relu": (1, 1_024, 1_024, 1_024, 1_024),
    }
    assert by_name(read.operators, *values) == {
        "aten::addmm": (2, 4_096, 2_048, 0, 4_096),
        "aten::relu": (1, 1_024, 1_024, 1_024, 1_024),
    }
    assert [row.name for row in counter(shown, ADD).kernels] == ["gemm", "relu"]  # 10 before 7


def test_operators_of_the_model(imported: Imported) -> None:
    shown = show(imported, *host(), *ranges(), by="outermost")
    assert by_name(counter(shown, FMA).operators, "total") == {
        "aten::linear": (4_000,),
        "aten::relu": (0,),
    }


def test_percentages_are_not_added(imported: Imported) -> None:
    """One range has no value: that is no zero."""
    active = counter(show(imported, *host(), *ranges()), ACTIVE)
    assert (active.unit, active.measured_count, active.total) == ("percent", 2, None)
    assert (active.mean, active.min, active.max) == (40.25, 30.5, 50.0)
    assert by_name(active.kernels, "total", "mean") == {"gemm": (None, 40.25)}


def test_flops(imported: Imported) -> None:
    """A fused multiply-add is two operations, an addition or a multiplication one."""
    shown = show(imported, *host(), *ranges())
    gemm, relu = 10 + 3 + 2 * 1_000 + 2 * 3_000, 7
    assert shown.total_flop == gemm + relu
    fields = ("measured_count", "total_flop", "mean_flop", "share_ratio")
    assert by_name(shown.kernel_flops, *fields) == {
        "gemm": (2, gemm, gemm / 2, pytest.approx(gemm / (gemm + relu))),
        "relu": (1, relu, relu, pytest.approx(relu / (gemm + relu))),
    }
    assert by_name(shown.operator_flops, "total_flop") == {
        "aten::addmm": (gemm,),
        "aten::relu": (relu,),
    }
    assert "(single)" in shown.notes[-1]


def test_flops_need_all_counters_of_a_precision(imported: Imported) -> None:
    shown = show(imported, *host(), *(counted(n, "gemm", {FMA: 5, ADD: 1}) for n in range(3)))
    assert shown.total_flop is None
    assert shown.kernel_flops == []


def test_recorded_kernels_give_the_operators_of_several_devices(imported: Imported) -> None:
    """Device 1 runs its kernel first, though it was launched last."""
    shown = show(
        imported,
        *host(),
        kernel(3_000, 100, 1),
        kernel(4_000, 100, 2, device=1, name="gemm"),
        kernel(6_500, 100, 3, device=0, name="relu"),
        counted(0, "gemm", {BYTES: 1}),
        counted(1, "relu", {BYTES: 2}),
        counted(0, "gemm", {BYTES: 4}, device=1),
    )
    assert by_name(counter(shown, BYTES).operators, "total") == {
        "aten::addmm": (5,),
        "aten::relu": (2,),
    }


@pytest.mark.parametrize(
    "measured",
    [
        [counted(0, "0", {BYTES: 9})],  # the whole window as one range
        [counted(n, "gemm", {BYTES: 3}, device=n % 2) for n in range(3)],
    ],
)
def test_no_operators_without_a_match(imported: Imported, measured: list[Event]) -> None:
    shown = show(imported, *host(), *measured)
    assert counter(shown, BYTES).total == 9
    assert counter(shown, BYTES).operators == []
    assert "3 launches of kernels" in shown.notes[0]


def test_kernel_of_no_operator(imported: Imported) -> None:
    shown = show(imported, launch(100, 10, 1), counted(0, "gemm", {BYTES: 3}))
    assert by_name(counter(shown, BYTES).operators, "total") == {"no operator": (3,)}


def test_choice_of_counters(imported: Imported) -> None:
    shown = show(imported, *host(), *ranges(), name="dram", top=1)
    assert [row.name for row in shown.counters] == [BYTES]
    assert [row.name for row in shown.counters[0].kernels] == ["gemm"]


def test_a_counter_that_is_zero_everywhere_has_no_groups(imported: Imported) -> None:
    shown = show(imported, *host(), *(counted(n, "gemm", {BYTES: 0}) for n in range(3)))
    row = counter(shown, BYTES)
    assert (row.total, row.max, row.kernels, row.operators) == (0, 0, [], [])


@pytest.mark.parametrize(
    ("events", "options", "sentence"),
    [
        ([], {}, "profiler_measure_per_kernel=True"),
        (ranges(), {"name": "sm__none"}, "no counter whose name contains 'sm__none'"),
    ],
)
def test_missing_counters(
    imported: Imported, events: list[Event], options: dict[str, Any], sentence: str
) -> None:
    assert sentence in show(imported, *host(), *events, **options).missing


def test_ranges_are_no_device_work(imported: Imported) -> None:
    """Their times are invented: they take no time of a device."""
    run = imported(trace=trace(*host(), *ranges()))
    (shown,) = VIEWS["gpu-time"](run).traces  # type: ignore[attr-defined]
    assert shown.devices == []


def test_text(imported: Imported, capsys: pytest.CaptureFixture[str]) -> None:
    run = imported(trace=trace(*host(), *ranges())).reader.location
    capsys.readouterr()
    root.main(["show", run, "kernel-counters", "--name", "dram"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "5 KiB" in out
    assert "aten::addmm" in out
    root.main(
        ["show", run, "kernel-counters", "--csv", "-", "--table", "counters.operators"],
        standalone_mode=False,
    )
    assert f"{BYTES},aten::addmm,2,4096.0" in capsys.readouterr().out
