"""Models compared with PyTorch's FLOP counter, on calls recorded by its profiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.analysis.roofline.calls import Call, Work
from stepscope.analysis.roofline.registry import estimate_work

torch = pytest.importorskip("torch")


def recorded(run: Callable[[], Any], path: Path) -> dict[str, list[Call]]:
    """Record every call by name, as the profiler writes it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path / "trace.json"))
    calls: dict[str, list[Call]] = {}
    for event in json.loads((path / "trace.json").read_text())["traceEvents"]:
        args = event.get("args", {})
        if event.get("cat") == "cpu_op" and "Input Dims" in args:
            call = Call(
                name=event["name"],
                dims=args["Input Dims"],
                types=args["Input type"],
                strides=args["Input Strides"],
                values=args["Concrete Inputs"],
            )
            calls.setdefault(event["name"], []).append(call)
    return calls


def counted(run: Callable[[], Any]) -> dict[str, int]:
    """Count FLOPs by operator with PyTorch."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    return {str(op): int(n) for op, n in counter.get_flop_counts()["Global"].items()}


def flops(calls: list[Call]) -> int:
    works = [estimate_work(call) for call in calls]
    assert all(isinstance(work, Work) for work in works), works
    return sum(work.flops or 0 for work in works if isinstance(work, Work))


def bias_additions(calls: list[Call]) -> int:
    """Count the additions of biases, which PyTorch's counter ignores."""
    total = 0
    for call in calls:
        product = Call(
            name="aten::mm" if call.name == "aten::addmm" else "aten::bmm",
            dims=call.dims[1:3],
            types=call.types[1:3],
        )
        total += flops([call]) - flops([product])
    return total


def test_products_of_matrices(tmp_path: Path) -> None:
    a, b, c = torch.randn(33, 17), torch.randn(17, 9), torch.randn(9)
    x, y = torch.randn(5, 33, 17), torch.randn(5, 17, 9)
    layer = torch.nn.Linear(17, 9)

    def run() -> None:
        torch.mm(a, b)
        torch.addmm(c, a, b)
        torch.bmm(x, y)
        torch.baddbmm(torch.randn(5, 33, 9), x, y)
        torch.matmul(x, b)
        layer(a).sum().backward()

    ours, theirs = recorded(run, tmp_path), counted(run)
    for name in ("mm", "bmm"):
        assert flops(ours[f"aten::{name}"]) == theirs[f"aten.{name}"]
    for name in ("addmm", "baddbmm"):
        calls = ours[f"aten::{name}"]
        assert flops(calls) - bias_additions(calls) == theirs[f"aten.{name}"]


@pytest.mark.parametrize(
    ("dimensions", "options"),
    [
        (1, {"stride": 2, "padding": 1}),
        (2, {"stride": 2, "padding": 1, "dilation": 2}),
        (3, {"padding": 1}),
    ],
)
def test_convolutions_and_their_gradients(
    dimensions: int, options: dict[str, int], tmp_path: Path
) -> None:
    kinds = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
    layer = kinds[dimensions](8, 12, 3, bias=False, **options)
    x = torch.randn(2, 8, *[11] * dimensions, requires_grad=True)

    def run() -> None:
        layer(x).square().sum().backward()

    ours, theirs = recorded(run, tmp_path), counted(run)
    assert flops(ours["aten::convolution"]) == theirs["aten.convolution"]
    assert flops(ours["aten::convolution_backward"]) == theirs["aten.convolution_backward"]


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (torch.nn.Conv2d(8, 12, 3, groups=4, bias=False), torch.randn(2, 8, 11, 11)),
        (
            torch.nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1, bias=False),
            torch.randn(2, 8, 7, 7),
        ),
    ],
    ids=["groups", "transposed"],
)
def test_gradients_take_twice_the_products_of_the_forward_pass(
    layer: Any, x: Any, tmp_path: Path
) -> None:
    """PyTorch's counter ignores groups in the gradient of the weight, and counts that of a
    transposed convolution by the output."""
    x = x.clone().requires_grad_()

    def run() -> None:
        layer(x).square().sum().backward()

    ours, theirs = recorded(run, tmp_path), counted(run)
    assert flops(ours["aten::convolution"]) == theirs["aten.convolution"]
    assert flops(ours["aten::convolution_backward"]) == 2 * theirs["aten.convolution"]
    (call,) = ours["aten::convolution"]
    size = x.numel() + layer.weight.numel() + layer(x).numel()
    assert estimate_work(call).bytes == 4 * size  # type: ignore[union-attr]


@pytest.mark.parametrize(("queries", "keys", "heads"), [(16, 16, 4), (16, 24, 4)])
def test_attention_and_its_gradient(queries: int, keys: int, heads: int, tmp_path: Path) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    q = torch.randn(2, heads, queries, 8, requires_grad=True)
    k = torch.randn(2, heads, keys, 8, requires_grad=True)
    v = torch.randn(2, heads, keys, 8, requires_grad=True)

    def run() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, k, v).square().sum().backward()

    ours = recorded(run, tmp_path)
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert flops(ours[name]) == sdpa_flop_count(q.shape, k.shape, v.shape)
    assert flops(ours[f"{name}_backward"]) == sdpa_backward_flop_count(
        q.shape, q.shape, k.shape, v.shape
    )


GROUPS = {
    "rows": ((64, 16), (4, 16, 24)),
    "columns": ((4, 24, 16), (16, 64)),
    "inner": ((24, 64), (64, 16)),
    "batches": ((4, 24, 16), (4, 16, 32)),
}


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "grouped_mm"), reason="torch >= 2.10 groups products on CPUs"
)
@pytest.mark.parametrize("item_type", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("arrangement", GROUPS)
def test_grouped_products_are_those_of_their_groups(
    arrangement: str, item_type: Any, tmp_path: Path
) -> None:
    """On CPUs, torch calls `mm` or `bmm` for the groups."""
    a, b = (torch.randn(size).to(item_type) for size in GROUPS[arrangement])
    offsets = None
    if arrangement != "batches":
        offsets = torch.tensor([16, 16, 40, 64], dtype=torch.int32)

    ours = recorded(lambda: torch._grouped_mm(a, b, offs=offsets), tmp_path)
    inner = ours.get("aten::mm", []) + ours.get("aten::bmm", [])
    assert flops(ours["aten::_grouped_mm"]) == flops(inner) > 0


def test_all_operators_of_a_small_network_are_modelled(tmp_path: Path) -> None:
    block = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 10, 32)

    ours = recorded(lambda: block(x).square().mean().backward(), tmp_path)
    for name in ("addmm", "native_layer_norm", "native_layer_norm_backward", "mm", "add", "mul"):
        for call in ours.get(f"aten::{name}", []):
            assert isinstance(estimate_work(call), Work), call
