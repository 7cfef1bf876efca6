"""Options for the recording of tensors: the plan that they make, and sentences for mistakes."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from stepscope.cli.tensor_options import tensor_options
from stepscope.spool import TensorPlan

PLANS: list[Any] = []


@click.command()
@tensor_options
def command(tensors: TensorPlan | None) -> None:
    """Keep the plan."""
    PLANS.append(tensors)


def plan(*arguments: str) -> TensorPlan | None:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    last_plan: TensorPlan | None = PLANS.pop()
    return last_plan


def test_without_options_there_is_no_plan() -> None:
    assert plan() is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tensors", "weights, losses"], {"collections": ["weights", "losses"]}),
        (["--tensors-matching", "^fc", "--tensors-matching", "bias$"],
         {"patterns": ["^fc", "bias$"]}),
        (["--tensors", "losses", "--tensors-every", "7"],
         {"collections": ["losses"], "interval": 7}),
        (["--tensors", "activations", "--tensors-eval-every", "30"],
         {"collections": ["activations"], "evaluation_interval": 30}),
        (["--tensors", "losses", "--tensors-steps", "10:20"],
         {"collections": ["losses"], "first_step": 10, "end_step": 20, "interval": 1}),
        (["--tensors", "losses", "--tensors-steps", "10:"],
         {"collections": ["losses"], "first_step": 10, "interval": 1}),
        (["--tensors", "losses", "--tensors-ranks", "0,3"],
         {"collections": ["losses"], "ranks": [0, 3]}),
        (["--tensors", "weights", "--tensors-sharded", "whole"],
         {"collections": ["weights"], "joins_shards": True}),
        (["--tensors", "weights", "--tensors-sharded", "shards"], {"collections": ["weights"]}),
        (["--tensors", "losses", "--tensors-ranks", "all", "--tensor-histograms"],
         {"collections": ["losses"], "histograms": True}),
        (["--tensors-raw", "fc.*", "--tensors-raw", "gradient/.*"],
         {"raw_patterns": ["fc.*", "gradient/.*"]}),
        (["--tensors-raw", "fc.*", "--tensors-raw-limit", "2MB"],
         {"raw_patterns": ["fc.*"], "raw_limit_bytes": 2_000_000}),
    ],
)  # fmt: skip
def test_plans(arguments: list[str], expected: dict[str, Any]) -> None:
    result = plan(*arguments)
    assert result is not None
    assert result.fields == TensorPlan(**expected).fields


def test_single_steps() -> None:
    result = plan("--tensors", "losses", "--tensors-steps", "5,7,9")
    assert result is not None
    assert [step for step in range(300) if result.records_step(step)] == [5, 7, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tensors", "weight"], "'weight' is none of weights, biases, gradients, losses"),
        (["--tensors-matching", "("], "'(' is not a regular expression"),
        (["--tensors", "losses", "--tensors-steps", "5-9"],
         "'5-9' is neither a range of steps, such as 100:500, nor steps, such as 5,7,9."),
        (["--tensors", "losses", "--tensors-ranks", "first"],
         "'first' is neither all nor ranks, such as 0,4."),
        (["--tensors", "losses", "--tensors-steps", "-1:5"], "the first step at least 0"),
        (["--tensors", "losses", "--tensors-steps", "500:100"], "'500:100' is neither a range"),
        (["--tensors-every", "5"], "no tensor is selected; add --tensors, --tensors-matching or"),
        (["--tensors-raw", "("], "'(' is not a regular expression"),
        (["--tensors", "losses", "--tensors-raw-limit", "5MB"],
         "no tensor is recorded with its elements; add --tensors-raw, such as"),
        (["--tensors-raw", "fc", "--tensors-raw-limit", "much"], "'much' is not a size, e.g."),
        (["--tensors-sharded", "whole"],
         "no tensor is selected; add --tensors, --tensors-matching or"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
