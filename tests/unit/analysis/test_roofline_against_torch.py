"""Models compared with PyTorch's FLOP counter, on calls recorded by its profiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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


def test_groups_divide_the_gradient_of_the_weight_too(tmp_path: Path) -> None:
    """PyTorch's counter ignores groups there; the sums are as many as in the forward pass."""
    layer = torch.nn.Conv2d(8, 12, 3, groups=4, bias=False)
    x = torch.randn(2, 8, 11, 11, requires_grad=True)

    def run() -> None:
        layer(x).square().sum().backward()

    ours, theirs = recorded(run, tmp_path), counted(run)
    assert flops(ours["aten::convolution"]) == theirs["aten.convolution"]
    assert flops(ours["aten::convolution_backward"]) == 2 * theirs["aten.convolution"]


def test_transposed_convolutions(tmp_path: Path) -> None:
    layer = torch.nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1, bias=False)
    x = torch.randn(2, 8, 7, 7, requires_grad=True)

    def run() -> None:
        layer(x).square().sum().backward()

    ours, theirs = recorded(run, tmp_path), counted(run)
    assert flops(ours["aten::convolution"]) == theirs["aten.convolution"]
    out = layer(x)
    (call,) = ours["aten::convolution"]
    estimate = estimate_work(call)
    assert isinstance(estimate, Work)
    assert estimate.bytes == 4 * (x.numel() + layer.weight.numel() + out.numel())
    # PyTorch counts the gradient of the weight by the output; it needs as many products as the
    # forward pass.
    assert flops(ours["aten::convolution_backward"]) == 2 * theirs["aten.convolution"]


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


def test_scaled_products(tmp_path: Path) -> None:
    """By formula: whether torch calls `aten::mm` inside of them depends on the CPU."""
    functional = torch.nn.functional
    a = torch.randn(48, 32).to(torch.float8_e4m3fn)
    b = torch.randn(16, 32).to(torch.float8_e4m3fn).t()
    scale = torch.tensor(1.0)

    def run() -> None:
        torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)
        if hasattr(functional, "scaled_mm"):  # torch >= 2.10
            kind = functional.ScalingType.TensorWise
            functional.scaled_mm(a, b, scale, kind, scale, kind, output_dtype=torch.bfloat16)

    ours = recorded(run, tmp_path)
    names = [name for name in ours if name.startswith("aten::_scaled_mm")]
    calls = [call for name in names for call in ours[name]]
    assert calls
    assert {flops([call]) for call in calls} == {
        2 * 48 * 32 * 16
    }  # a multiplication and an addition
    for name in names:
        (estimate,) = map(estimate_work, ours[name])
        assert isinstance(estimate, Work)
        assert estimate.bytes == 48 * 32 + 32 * 16 + 2 * 48 * 16
        assert estimate.precision == "fp8"


@pytest.fixture
def servers() -> Iterator[None]:
    """Operators of vLLM with their signatures, as far as this test needs them, in Python."""
    definitions = {
        "vllm": (
            "outplace_fused_experts(Tensor hidden, Tensor w1, Tensor w2, Tensor weights, "
            'Tensor ids, str activation="silu", bool weigh_input=False, bool fp8=False, '
            "SymInt experts=-1, Tensor? map=None) -> Tensor",
            run_experts,
        ),
        "_C": (
            "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon) "
            "-> ()",
            run_norm,
        ),
    }
    libraries = []
    for namespace, (schema, implementation) in definitions.items():
        library = torch.library.Library(namespace, "FRAGMENT")
        library.define(schema)
        library.impl(schema.partition("(")[0], implementation, "CPU")
        libraries.append(library)
    yield
    for library in libraries:
        library._destroy()


def run_experts(
    hidden: Any, w1: Any, w2: Any, weights: Any, ids: Any, *options: Any, **keywords: Any
) -> Any:
    """Visit the experts one by one, each with the tokens that chose it."""
    out = torch.zeros_like(hidden)
    for expert in range(len(w1)):
        token, position = torch.where(ids == expert)
        if len(token):
            gate, up = torch.mm(hidden[token], w1[expert].t()).chunk(2, dim=-1)
            result = torch.mm(torch.nn.functional.silu(gate) * up, w2[expert].t())
            out.index_add_(0, token, result * weights[token, position, None])
    return out


def run_norm(x: Any, residual: Any, weight: Any, epsilon: float) -> None:
    residual.add_(x)
    x.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, epsilon))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("servers")
def test_experts_do_the_products_of_their_tokens(seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    hidden, w1, w2 = torch.randn(20, 12), torch.randn(8, 16, 12), torch.randn(8, 12, 8)
    weights, ids = torch.randn(20, 8).softmax(dim=-1).topk(3)

    def run() -> None:
        torch.ops.vllm.outplace_fused_experts(hidden, w1, w2, weights, ids.int())

    ours = recorded(run, tmp_path)
    assert flops(ours["vllm::outplace_fused_experts"]) == flops(ours["aten::mm"]) > 0


@pytest.mark.usefixtures("servers")
def test_norm_after_a_sum_adds_and_normalizes(tmp_path: Path) -> None:
    x, residual, weight = torch.randn(20, 12), torch.randn(20, 12), torch.randn(12)

    ours = recorded(lambda: torch.ops._C.fused_add_rms_norm(x, residual, weight, 1e-6), tmp_path)
    parts = [*ours["aten::add_"][:1], *ours["aten::_fused_rms_norm"]]
    assert flops(ours["_C::fused_add_rms_norm"]) == flops(parts) > 0


def test_all_operators_of_a_small_network_are_modelled(tmp_path: Path) -> None:
    block = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    x = torch.randn(2, 10, 32)

    ours = recorded(lambda: block(x).square().mean().backward(), tmp_path)
    for name in ("addmm", "native_layer_norm", "native_layer_norm_backward", "mm", "add", "mul"):
        for call in ours.get(f"aten::{name}", []):
            assert isinstance(estimate_work(call), Work), call
