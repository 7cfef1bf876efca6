"""Headline of a comparison: different work, and the strongest evidence of a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepscope.comparison.compare import compare_runs, write_headline
from stepscope.comparison.step_changes import StepTimes, compare_steps
from stepscope.run import Run
from tests.support.drawn_trace import event, step

Imported = Callable[..., Run]
MS = 1_000_000


def describe(base: dict[str, list[float]], candidate: dict[str, list[float]]) -> str:
    """Write the headline of two runs of one rank, given the milliseconds of their steps' parts."""
    runs = [
        StepTimes(parts={name: (np.array(ms) * MS).astype(np.int64) for name, ms in parts.items()})
        for parts in (base, candidate)
    ]
    return write_headline(compare_steps(runs[:1], runs[1:]), [])


STEADY = [40.0] * 6
UNEVEN = [40.0, 40, 40, 70, 40, 100]
"""Uneven enough that no change of the mean by 20 ms is beyond noise: the mean is 55 ms, and the
halves of three steps differ by 30 ms in the mean."""


def test_parts_beyond_noise_are_named_where_the_mean_is_uncertain() -> None:
    base = {"wait": [20.0] * 6, "compute": UNEVEN, "tiny": [0.01] * 6}
    headline = describe(base, {"wait": [0.0] * 6, "compute": UNEVEN[::-1], "tiny": [0.02] * 6})
    assert headline.startswith(
        "Steps are 1.36x faster, within noise: 75 → 55 ms; wait 20 ms → 0 ns. With 6 steps"
    )
    assert "tiny" not in headline
    # floor: sqrt(2) * 30 ms around the change of -20 ms
    assert headline.endswith("With 6 steps the 95% interval of the mean is -62.4 ms to +22.4 ms.")


def test_the_median_beyond_noise_comes_first() -> None:
    """One slow step decides the mean; all others are shorter by 10 ms."""
    base = {"compute": [40.0] * 12}
    headline = describe(base, {"compute": [30.0] * 11 + [150.0]})
    assert headline.startswith(
        "The median step is 1.33x faster: 40 → 30 ms. The mean step is unchanged at 40 ms, "
        "within noise; with 12 steps"
    )


def test_a_change_within_noise_is_stated_with_its_interval() -> None:
    headline = describe({"compute": STEADY}, {"compute": UNEVEN})
    assert headline == (
        "No change of the step beyond noise: mean 1.38x slower: 40 → 55 ms; with 6 steps the 95% "
        "interval of the mean is -27.4 ms to +57.4 ms."
    )
    longer = [ms + 0.02 for ms in UNEVEN]
    nearly_same = describe({"compute": UNEVEN}, {"compute": longer})
    assert "noise: mean nearly unchanged: 55 → 55 ms;" in nearly_same


def test_more_loader_workers_shorten_the_step(real: Callable[[str], Run]) -> None:
    """The textbook pair: six steps each, the DataLoader with no worker process and with four."""
    base, candidate = (real(f"resnet50_num_workers_{count}.v100.json.gz") for count in (0, 4))
    headline = compare_runs([base], [candidate]).headline
    assert headline == (
        "Steps are 1.26x faster, within noise: 178 → 141 ms; the data loader no longer holds them "
        "(59.3 → 1.19 ms). With 6 steps the 95% interval of the mean is -80.6 ms to +7.56 ms."
    )


# --- different work --------------------------------------------------------------------------


def draw_layers(*, batch: int = 32, width: int = 64) -> list[dict[str, Any]]:
    """Draw ten steps that carry out a convolution and a linear layer."""
    events = []
    for number in range(10):
        at = 100 * number
        shapes = {
            "aten::conv2d": [[batch, 3, 8, 8], [width, 3, 3, 3], [width]],
            "aten::linear": [[batch, width], [10, width], [10]],
        }
        events.append(step(number, at, 100))
        for index, (name, dims) in enumerate(shapes.items()):
            dims_of = {"Input Dims": dims}
            events.append(event("cpu_op", name, at + 10 + 30 * index, 20, **dims_of))
    return events


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, None),
        ({"batch": 64}, "batch"),
        ({"width": 128}, "model"),
        ({"batch": 64, "width": 128}, "model, batch"),
    ],
)
def test_different_work_of_traces_comes_first(
    imported: Imported, changes: dict[str, int], names: str | None
) -> None:
    result = compare_runs([imported(a=draw_layers())], [imported(a=draw_layers(**changes))])
    assert result.headline.startswith(f"The runs did different work ({names}), so") == bool(names)
    standing = {terms.group: terms.standing for terms in result.contract}
    different = names.split(", ") if names else []
    for group in ("model", "batch"):
        assert standing[group] == ("different" if group in different else "same")


def test_different_gpus_come_after_the_factor(imported: Imported) -> None:
    def draw_on(gpu: str) -> dict[str, Any]:
        return {"deviceProperties": [{"id": 0, "name": gpu}], "traceEvents": draw_layers()}

    result = compare_runs([imported(a=draw_on("V100"))], [imported(a=draw_on("A100"))])
    assert result.headline.startswith("No change of the step beyond noise: mean unchanged")
    assert result.headline.endswith(" The runs also differ in GPUs of the trace.")
