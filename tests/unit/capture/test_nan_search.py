"""Search for the origin of NaN in real trainings: the operator and its line, or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepscope.spool import AFTER_LOSS, FROM_START
from tests.conftest import Spool

TRAININGS = Path(__file__).parent / "jobs" / "nan_trainings.py"
ORIGINS = {
    "log_of_zero": ("loss", "log", 1, "loss"),
    "zero_by_zero_in_norm": ("forward", "div", 2, "loss"),
    "half_precision_overflow": ("forward", "addmm", 1, "loss"),
    "ignored_labels": ("loss", "nll_loss_forward", 1, "loss"),
    "missing_target": ("input", "", 1, "loss"),
    "exploding_recurrence": ("forward", "mm", 0, "loss"),
    "masked_row": ("forward", "softmax", 2, "loss"),
    "division_in_loss": ("loss", "div", 1, "loss"),
    "corrupt_sample": ("input", "", 3, "loss"),
    "epsilon_zero": ("optimizer", "addcdiv", 0, "parameters"),
    "square_root_at_zero": ("backward", "div", 1, "gradients"),
    "hidden_branch": ("loss", "sqrt", 0, "gradients"),
    "infinite_weight": ("parameters", "", 0, "loss"),
    "deviation_of_one": ("loss", "std", 1, "loss"),
    "complex_phase": ("loss", "div", 1, "loss"),
    "second_loss": ("loss", "div", 0, "loss"),
    "collapsed_scale": ("backward", "div", 3, "gradients"),
    "stops_at_loss": ("loss", "div", 1, "value"),
    "recurs": ("loss", "div", 2, "loss"),
    "last_loss": ("loss", "exp", 2, "loss"),
}
"""Phase, operator and step of the origin, and where the search found it."""
HEALTHY = (
    "deliberate_masks", "skipped_steps", "metric_without_value", "gradient_that_is_clipped",
    "samples_without_fault",
)  # fmt: skip
COMPARED = ("exploding_recurrence", "corrupt_sample", "deviation_of_one", *HEALTHY)


@dataclass(frozen=True)
class Trainings:
    """Facts and digests by the name of the training."""

    facts: dict[str, list[dict[str, Any]]]
    digests: dict[str, str]

    def of(self, name: str, fact: str) -> list[dict[str, Any]]:
        return [entry for entry in self.facts[name] if entry["fact"] == fact]


def run_trainings(directory: Path, start: str | None, *names: str) -> Trainings:
    """Run trainings, each in a process of its own."""
    spool = Spool(directory / "spool")
    spool.path.mkdir()
    out = directory / "out"
    spool.run_torch(TRAININGS, str(out), *names, **({} if start is None else {"START": start}))
    rows = [line.split() for line in out.read_text().splitlines()]
    recorded = spool.drain()
    assert not recorded.notes
    facts = {process.pid: process.facts for process in recorded.processes.values()}
    return Trainings(
        {name: facts.get(int(pid), []) for name, pid, _ in rows},
        {name: digest for name, _, digest in rows},
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return run_trainings(tmp_path_factory.mktemp("searched"), FROM_START)


def line_of(name: str) -> int:
    lines = TRAININGS.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# origin: {name}")]
    return number


@pytest.mark.parametrize("name", ORIGINS)
def test_the_origin_is_found(searched: Trainings, name: str) -> None:
    (origin,) = searched.of(name, "nan_origin")

    actual = origin["phase"], origin["operator"], origin["step"], origin["reached"]
    assert actual == ORIGINS[name]
    assert (Path(origin["file"]).name, origin["line"]) == (TRAININGS.name, line_of(name))
    assert origin["caller_file"] == ""


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_in_a_healthy_training(searched: Trainings, name: str) -> None:
    assert not searched.of(name, "nan_origin")
    assert searched.of(name, "nan_search")[-1]["step_count"] >= 1


FIELDS: dict[str, dict[str, Any]] = {
    "zero_by_zero_in_norm": {"module": "1", "module_class": "Normalized"},
    "infinite_weight": {"parameter": "weight"},
    "epsilon_zero": {"reached_parameter": "weight"},
    # The gradients of the first rank come from the second one.
    "exchanged_gradients": {"phase": "exchange", "step": 1, "file": ""},
    "exchanged_gradients_1": {
        "phase": "backward",
        "step": 1,
        "autograd_node": "SqrtBackward0",
        "line": line_of("exchanged_gradients"),
    },
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_origins(searched: Trainings, name: str) -> None:
    (origin,) = searched.of(name, "nan_origin")

    assert origin.items() >= FIELDS[name].items()


def test_values_of_inputs_and_result(searched: Trainings) -> None:
    """An infinite number is followed to the NaN."""
    (norm,) = searched.of("zero_by_zero_in_norm", "nan_origin")
    (overflow,) = searched.of("half_precision_overflow", "nan_origin")
    (log,) = searched.of("log_of_zero", "nan_origin")

    # Row 5 of 8 is zero, and so is its norm.
    assert norm["result"]["nan_count"] == 4
    assert [values["zero_count"] for values in norm["inputs"]] == [4, 1]
    assert overflow["result"]["positive_infinite_count"] == 8
    assert math.isclose(overflow["inputs"][1]["max"], 100.0)
    assert log["result"]["negative_infinite_count"]
    assert log["result"]["nan_count"] == 0
    follower = log["follower"]
    assert (follower["operator"], follower["line"]) == ("mul", log["line"] + 1)


def test_results_are_identical_bit_by_bit(searched: Trainings, tmp_path: Path) -> None:
    plain = run_trainings(tmp_path, None, *COMPARED)

    assert plain.digests == {name: searched.digests[name] for name in COMPARED}


def test_a_search_after_a_loss_finds_what_recurs(tmp_path: Path) -> None:
    names = ("recurs", "corrupt_sample", "last_loss", "samples_without_fault")
    after = run_trainings(tmp_path, AFTER_LOSS, *names)

    (origin,) = after.of("recurs", "nan_origin")
    assert (origin["step"], origin["line"]) == (4, line_of("recurs"))
    assert [fact["loss_step"] for fact in after.of("recurs", "nan_search")] == [None, 2, 2]
    # The only corrupt sample is over, and has left parameters that are not finite.
    (origin,) = after.of("corrupt_sample", "nan_origin")
    assert (origin["phase"], origin["step"]) == ("parameters", 4)
    assert after.of("last_loss", "nan_search")[-1]["loss"] == "inf"
    assert not after.of("samples_without_fault", "nan_origin")
    assert [fact["loss"] for fact in after.of("samples_without_fault", "nan_search")] == [None]
