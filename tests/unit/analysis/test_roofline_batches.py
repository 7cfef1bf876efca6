"""Attention over sequences of different lengths, against loops over queries and keys."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from stepscope.analysis.roofline.accounting import parse_batch
from stepscope.analysis.roofline.calls import BatchLengths, Work
from stepscope.analysis.roofline.registry import estimate_work
from tests.support.roofline_calls import BF16, INT32, Argument, call, reject, tensor, work
from tests.support.roofline_columns import Launch, Op, accounted

Lengths = list[tuple[int, int]]


def count_twice_pairs(lengths: Lengths) -> int:
    """Count pairs of query and key twice, the diagonal of the new tokens once: half of it."""
    total = 0
    for new, keys in lengths:
        for query, key in product(range(new), range(keys)):
            position = keys - new + query
            total += 2 if key < position else 1 if key == position else 0
    return total


def sum_lengths(lengths: Lengths) -> BatchLengths:
    return BatchLengths(
        queries=sum(q for q, _ in lengths),
        keys=sum(k for _, k in lengths),
        squares=sum(q * q for q, _ in lengths),
        products=sum(q * k for q, k in lengths),
    )


def name_sums(lengths: Lengths) -> str:
    sums = sum_lengths(lengths)
    return f"(sq{sums.queries}sk{sums.keys}sqsq{sums.squares}sqsk{sums.products})"


def name_step(context: Lengths, generation: Lengths) -> str:
    tokens = sum(q for q, _ in context + generation)
    return (
        f"execute_{tokens}_context_{len(context)}{name_sums(context)}"
        f"_generation_{len(generation)}{name_sums(generation)}"
    )


CONTEXT: Lengths = [(5, 5), (3, 9)]
GENERATION: Lengths = [(1, 12), (1, 7), (2, 4)]


def test_annotations_name_the_lengths() -> None:
    both = sum_lengths(CONTEXT + GENERATION)
    assert parse_batch(name_step(CONTEXT, GENERATION)) == both
    c, g = sum_lengths(CONTEXT), sum_lengths(GENERATION)
    mixed = (
        f"step[MIXED bs=5 c=2 g=3 c_sq={c.queries} c_sk={c.keys} c_sqsq={c.squares} "
        f"c_sqsk={c.products} g_sq={g.queries} g_sk={g.keys} g_sqsq={g.squares} "
        f"g_sqsk={g.products}]"
    )
    extend = f"step[EXTEND bs=2 toks=8 c_sq=8 c_sqsq={c.squares} c_sqsk={c.products} c_sk={c.keys}]"
    assert parse_batch(mixed) == both
    assert parse_batch(extend) == c


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_1(888)_generation_0(0)",
        "execute_context_1(888_788544)_generation_0(0)",
        "step[DECODE bs=32]",
        "step[EXTEND bs=15 toks=15360]",
        "my_sq1sk1sqsq1sqsk1",
        "",
    ],
)
def test_annotations_without_lengths(name: str) -> None:
    assert parse_batch(name) is None


def unified(tokens: int, batch: BatchLengths | None) -> Work | str:
    """Attention of vLLM: 4 heads of queries, 2 of keys and values, 8 numbers each."""
    q, k = tensor(tokens, 4, 8), tensor(tokens, 2, 8)
    arguments = call("vllm::unified_attention_with_output", q, k, k, q, None, None, None)
    return estimate_work(replace(arguments, batch=batch))


@pytest.mark.parametrize("padding", [0, 4])
def test_attention_of_annotated_lengths(padding: int) -> None:
    lengths = CONTEXT + GENERATION
    tokens = sum(q for q, _ in lengths)
    estimate = unified(tokens + padding, sum_lengths(lengths))
    assert isinstance(estimate, Work)
    # Two products of 8 numbers each, and 4 heads.
    assert estimate.flops == 4 * count_twice_pairs(lengths) * (8 + 8)
    keys = sum(k for _, k in lengths)
    assert estimate.bytes == 2 * (tokens * 4 * (8 + 8) + keys * 2 * (8 + 8))
    assert estimate.note is not None
    assert "sliding window" in estimate.note


def test_attention_of_unknown_lengths_is_unknown() -> None:
    assert "not in the trace" in str(unified(12, None))
    assert "not those of this call" in str(unified(3, sum_lengths(CONTEXT)))


def prefill(tokens: int, sequences: int, *scalars: str) -> list[Argument]:
    """Arguments of AITER's prefill from pages: a cache of 100 tokens."""
    cache, starts = tensor(100, 2, 8), tensor(sequences + 1, type_=INT32)
    return [tensor(tokens, 4, 8), cache, cache, starts, starts, tensor(64, type_=INT32), *scalars]


def test_maxima_that_leave_one_possibility_are_the_lengths() -> None:
    scalars = "0.", "0.125", "0.", "False", "True", "-1", "-1"
    estimate = work("aiter::mha_batch_prefill", *prefill(12, 3, "4", "4", *scalars))
    assert estimate.flops == 4 * count_twice_pairs([(4, 4)] * 3) * (8 + 8)
    assert estimate.bytes == 2 * (12 * 4 * 16 + 12 * 2 * 16)
    assert estimate.note is None
    later_only = *scalars[:4], "False", "-1", "0"  # a window without later tokens is causal
    assert work("aiter::mha_batch_prefill", *prefill(12, 3, "4", "4", *later_only)) == estimate


@pytest.mark.parametrize(
    ("sequences", "maxima", "window"),
    [(3, ("4", "9"), "-1"), (4, ("4", "4"), "-1"), (3, ("4", "4"), "127")],
)
def test_maxima_that_leave_several_possibilities(
    sequences: int, maxima: tuple[str, str], window: str
) -> None:
    arguments = prefill(12, sequences, *maxima, "0.", "0.125", "0.", "False", "True", window, "0")
    assert "windo" in reject("aiter::mha_batch_prefill", *arguments)


def flash_3(q: Argument, k: Argument, starts: Argument, table: Argument) -> list[Argument]:
    positions: list[Argument] = [None] * 27
    positions[:3] = q, k, k
    positions[7] = starts
    positions[12:15] = ("4", "4", table) if starts else (None, None, table)
    positions[23:27] = "0.125", "True", "-1", "-1"
    return positions


@pytest.mark.parametrize("name", ["_vllm_fa3_C::fwd", "flash_attn_3::fwd"])
def test_flash_attention_3_with_and_without_a_cache(name: str) -> None:
    q, k, starts = tensor(3, 4, 4, 8), tensor(3, 4, 2, 8), tensor(4, type_=INT32)
    dense = work(name, *flash_3(q, k, None, None))
    assert dense.flops == 4 * count_twice_pairs([(4, 4)] * 3) * (8 + 8)
    packed = work(name, *flash_3(tensor(12, 4, 8), tensor(12, 2, 8), starts, None))
    assert packed == dense
    several = work(name, *flash_3(tensor(9, 4, 8), tensor(9, 2, 8), starts, None))
    assert several.flops == 4 * count_twice_pairs([(3, 3)] * 3) * (8 + 8)
    assert several.note is not None
    assert "lower bound" in several.note
    pages, table = tensor(20, 16, 2, 8), tensor(3, 10, type_=INT32)
    assert work(name, *flash_3(tensor(12, 4, 8), pages, starts, table)).flops == dense.flops
    assert "not in the trace" in reject(name, *flash_3(q, pages, None, table))


def test_lengths_are_those_of_causal_calls_with_a_cache() -> None:
    """A step of 12 new tokens: 3 with 20 each; calls of an encoder are no part of it."""
    lengths: Lengths = [(4, 20)] * 3
    q, starts, table = tensor(12, 4, 8), tensor(4, type_=INT32), tensor(3, 10, type_=INT32)
    pages, keys = tensor(20, 16, 2, 8), tensor(12, 2, 8)

    def estimate(k: Argument, pages_of_k: Argument, mask: str) -> Work | str:
        arguments = flash_3(q, k, starts, pages_of_k)
        arguments[13], arguments[24] = "20" if pages_of_k else "4", mask
        drawn = call("_vllm_fa3_C::fwd", *arguments)
        return estimate_work(replace(drawn, batch=sum_lengths(lengths)))

    cached, packed = estimate(pages, table, "True"), estimate(keys, None, "False")
    assert isinstance(cached, Work)
    assert isinstance(packed, Work)
    assert cached.flops == 4 * count_twice_pairs(lengths) * (8 + 8)
    assert packed.flops == 4 * sum(2 for _ in product(range(3), range(4), range(4))) * (8 + 8)
    assert "not in the trace" in str(estimate(pages, table, "False"))


def test_shapes_without_heads_are_unknown() -> None:
    q, k = tensor(1, 32), tensor(1, 16)
    arguments = call("vllm::unified_attention_with_output", q, k, k, q, None)
    assert "heads" in str(estimate_work(replace(arguments, batch=sum_lengths([(1, 9)]))))


def test_annotated_steps_of_a_trace_have_works_of_their_own() -> None:
    """Two steps with the same shapes; the second calls a kernel with a sliding window, too."""

    def attend(start: int, kernel: str) -> Op:
        q, k = [12, 4, 8], [12, 2, 8]
        return Op(
            "vllm::unified_attention_with_output",
            start,
            dims=[q, k, k, q, []],
            types=[BF16, BF16, BF16, BF16, ""],
            values=["", "", "", "", ""],
            launches=[Launch(kernel, start + 5, 10)],
        )

    account = accounted(
        attend(100, "fmha"), attend(200, "fmha"), attend(210, "fmhaSlidingCausal"),
        attend(300, "fmha"),
        annotations=[
            (name_step(CONTEXT, []), 90, 50),
            (name_step([], [(1, 20)] * 12), 190, 50),
            ("execute_context_1(8)_generation_0(0)", 290, 50),
        ],
    )  # fmt: skip
    works = [account.signatures[int(signature)].work for signature in account.signature]
    flops = [estimate.flops if estimate is not None else None for estimate in works]
    assert flops == [
        4 * count_twice_pairs(CONTEXT) * 16,
        4 * count_twice_pairs([(1, 20)] * 12) * 16,
        None,
        None,
    ]


def test_operator_inside_knows_the_mask_of_the_layer() -> None:
    """The library's operator gets the kernel, and has no figures with a sliding window."""
    q, pages = tensor(12, 4, 8), tensor(20, 16, 2, 8)
    starts, table = tensor(4, type_=INT32), tensor(3, 10, type_=INT32)

    def attend(start: int, window: str) -> Op:
        arguments = flash_3(q, pages, starts, table)
        arguments[25] = window
        drawn = call("_vllm_fa3_C::fwd", *arguments)
        types, dims = list(drawn.types), list(drawn.dims)
        inner = Op(drawn.name, start + 5, dims=dims, types=types, values=list(drawn.values))
        inner.launches = [Launch("flash", start + 10, 10)]
        return Op(
            "vllm::unified_attention_with_output",
            start,
            dims=[*dims[:2], dims[1], dims[0], []],
            types=[BF16, BF16, BF16, BF16, ""],
            values=["", "", "", "", ""],
            inside=[inner],
        )

    lengths: Lengths = [(4, 20)] * 3
    account = accounted(
        attend(100, "-1"), attend(150, "127"), annotations=[(name_step(lengths, []), 90, 100)]
    )
    signatures = [account.signatures[int(signature)] for signature in account.signature]
    assert [signature.name for signature in signatures] == ["_vllm_fa3_C::fwd"] * 2
    first, second = (signature.work for signature in signatures)
    assert first.flops == 4 * count_twice_pairs(lengths) * (8 + 8)
    assert second is None
