"""Batches that are small for their model, on drawn jobs. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import samples_at_a_time
from stepscope.testing import RunBuilder
from stepscope.testing.runs import DrawnProcess

RunMaker = Callable[..., RunBuilder]


def draw_window(
    run: RunBuilder, step: str, window: str, *, tensors: int, batch: int | None
) -> DrawnProcess:
    """Draw a profiler window between steps, of a model with `tensors` parameters."""
    process = run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    process.fact("model", model=1, parameter_count=10, tensor_count=tensors, dtypes=["float32"])
    if batch is not None:
        inputs = [{"name": "0", "shape": [batch, 8], "dtype": "float32"}]
        process.fact("model_inputs", model=1, inputs=inputs)
    return process


def draw_job(run: RunBuilder, optimizer: float, *, tensors: int, batch: int | None = 16) -> None:
    """Draw passes of 100 ms, 20 of them in 20 calls of operators, and an optimizer."""
    passes = " | ".join(["op:mm 4 | do 1"] * 10)
    step = f"forward 50 | backward 50 | optimizer {optimizer}"
    window = (
        f"forward 50 ( {passes} ) | backward 50 ( {passes} ) | "
        f"optimizer {optimizer} ( op:addcdiv {optimizer} )"
    )
    draw_window(run, step, window, tensors=tensors, batch=batch)


def test_a_batch_is_small_where_twice_as_much_saves_a_fifth(new_run: RunMaker) -> None:
    """Of 140 ms, 20 call operators and 40 are the optimizer: 60 / 140 do not grow."""
    run = new_run()
    draw_job(run, 40, tensors=8)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "small_batch")
    assert verdict.share_ratio == pytest.approx(60 / 140)
    assert [stage.name for stage in verdict.stages] == ["optimizer", "calling operators"]
    prediction = verdict.fixes[0].prediction
    assert prediction.saving_ratio == pytest.approx(30 / 140)
    assert "twice the batch" in verdict.fixes[0].title


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"optimizer": 30, "tensors": 8}, id="a sample takes 19% less"),
        pytest.param({"optimizer": 40, "tensors": 8, "batch": None}, id="batch not known"),
    ],
)
def test_other_batches_are_not_small(new_run: RunMaker, facts: dict[str, int | None]) -> None:
    run = new_run()
    draw_job(run, **facts)
    assert diagnose(run.open()).cause == "none"


def test_a_loop_over_elements_has_no_small_batch(new_run: RunMaker) -> None:
    """200 operators call one tensor in every step."""
    run = new_run()
    passes = " | ".join(["op:mm 0.4 | do 0.1"] * 100)
    step = "forward 50 | backward 50 | optimizer 40"
    window = f"forward 50 ( {passes} ) | backward 50 ( {passes} ) | optimizer 40 ( op:addcdiv 40 )"
    process = run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    process.fact("model", model=1, parameter_count=10, tensor_count=1, dtypes=["float32"])
    inputs = [{"name": "0", "shape": [16, 8], "dtype": "float32"}]
    process.fact("model_inputs", model=1, inputs=inputs)
    assert diagnose(run.open()).cause != "small_batch"


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [([4], "float32", 1), ([64], "int64", 64), ([16, 8], "float32", 16)],
)
def test_a_vector_of_real_numbers_is_one_sample(
    new_run: RunMaker, shape: list[int], dtype: str, expected: int
) -> None:
    run = new_run()
    process = run.rank().draw("forward 5 | backward 5 | optimizer 5", 3)
    process.fact("model", model=1, parameter_count=10, tensor_count=1, dtypes=["float32"])
    inputs = [{"name": "0", "shape": shape, "dtype": dtype}]
    process.fact("model_inputs", model=1, inputs=inputs)
    assert samples_at_a_time(run.open().ranks[0]) == expected


@pytest.mark.parametrize("batch", [16, None])
def test_dispatch_of_a_model_without_a_loop_is_a_small_batch(
    new_run: RunMaker, batch: int | None
) -> None:
    """Graphs in a list have no recorded size. Of 10 ms, 3.6 call operators and 1 is the
    optimizer."""
    forward, backward = (" | ".join(["op:mm 0.03 | do 0.02"] * count) for count in (110, 70))
    step = "forward 5.5 | backward 3.5 | optimizer 1"
    window = f"forward 5.5 ( {forward} ) | backward 3.5 ( {backward} ) | optimizer 1 ( op:add 1 )"
    run = new_run()
    draw_window(run, step, window, tensors=8, batch=batch)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "small_batch")
    texts = " ".join(evidence.text for evidence in verdict.evidence)
    assert ("16 samples at a time" in texts) == (batch is not None)


@pytest.mark.parametrize("batch", [16, None])
def test_dispatch_once_per_sufficient_batch_is_no_bottleneck(
    new_run: RunMaker, batch: int | None
) -> None:
    """Of 9.4 ms, 2.7 call operators and 0.4 are the optimizer: twice the batch would save half of
    33%. Without a known batch, merging the operators would save too little."""
    forward, backward = (" | ".join(["op:mm 0.035 | do 0.015"] * count) for count in (100, 80))
    step = "forward 5 | backward 4 | optimizer 0.4"
    window = f"forward 5 ( {forward} ) | backward 4 ( {backward} ) | optimizer 0.4 ( op:add 0.4 )"
    run = new_run()
    draw_window(run, step, window, tensors=8, batch=batch)
    verdict = diagnose(run.open())
    assert verdict.suspect == "healthy"
    reasons = " ".join(reason.why for reason in verdict.ruled_out)
    assert ("a sample would take only 16% less" in reasons) == (batch is not None)
    assert ("none has 20%, or 40% for calling operators" in reasons) == (batch is None)


def test_calls_of_compiled_functions_are_no_calls_of_operators(new_run: RunMaker) -> None:
    """Of 150 ms, 50 call compiled functions and 30 of the passes call operators."""
    run = new_run()
    passes = " | ".join(["op:mm 3.5 | do 1.5"] * 10)
    step = "dispatch:normalise 50 | forward 50 | backward 50 | optimizer 0.1"
    window = f"forward 50 ( {passes} ) | backward 50 ( {passes} ) | optimizer 0.1"
    draw_window(run, step, window, tensors=8, batch=16)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "dispatch_overhead")
    texts = [evidence.text for evidence in verdict.evidence]
    assert any("calls of compiled functions per step take 50 ms each" in text for text in texts)


@pytest.mark.parametrize(
    ("used_length", "used_count", "padding", "expected"),
    [
        pytest.param(12, 8 * 10, "passes over padding", 0.8 * 36 / 48, id="fixed length"),
        pytest.param(48, 8 * 12, "similar length", 0.8 * 36 / 48, id="uneven lengths"),
        pytest.param(44, 8 * 30, "", 0.0, id="little to save"),
    ],
)
def test_padding_is_a_cause_where_shorter_rows_save_enough(
    new_run: RunMaker, used_length: int, used_count: int, padding: str, expected: float
) -> None:
    """The passes have 80% of the step; rows have 48 positions."""
    run = new_run()
    passes = "op:mm 40"
    step = "forward 40 | backward 40 | optimizer 20"
    window = f"forward 40 ( {passes} ) | backward 40 ( {passes} ) | optimizer 20 ( op:addcdiv 20 )"
    process = draw_window(run, step, window, tensors=8, batch=8)
    for _ in range(4):
        process.fact(
            "padding",
            mask="attention_mask",
            rows=8,
            length=48,
            used_length=used_length,
            used_count=used_count,
        )
    verdict = diagnose(run.open())
    if not padding:
        assert verdict.cause == "none"
        return
    assert (verdict.suspect, verdict.cause) == ("model", "padding")
    assert verdict.share_ratio == pytest.approx(expected)
    first = verdict.fixes[0]
    assert first.prediction.saving_ratio == pytest.approx(expected)
    assert ("similar length" in first.title) == (padding == "similar length")
    evidence = " ".join(item.text for item in verdict.evidence)
    assert ("needs 12 (75% less)" in evidence) == (padding != "similar length")
