"""Labels on every surface: text, JSON, the document of the API and the generated types."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from stepscope.cli import root as command_line
from stepscope.cli.commands.show import command as show
from stepscope.run import Run
from stepscope.schema import field_label
from stepscope.server.openapi import openapi
from stepscope.testing import RunBuilder
from stepscope.views import DEFAULTS, VIEWS, View, ViewOptions
from stepscope.views.registry import BUILT_IN_VIEWS

GENERATOR = Path(__file__).parents[2] / "web" / "api_types.py"


class ToyQueue(msgspec.Struct):
    name: Annotated[str, field_label("queue")]
    depth: Annotated[float, field_label("mean depth", unit="count")]
    held_bytes: int
    """Memory of its batches."""


class ToyQueuesView(msgspec.Struct):
    wait_ns: int
    """Time in which no batch was ready."""
    queues: list[ToyQueue]


def show_toy_queues(_run: Run, _options: ViewOptions = DEFAULTS) -> ToyQueuesView:
    """Show the queues of a toy."""
    return ToyQueuesView(wait_ns=1_500_000, queues=[ToyQueue("batches", 2.5, 3 << 20)])


@pytest.fixture(autouse=True)
def toy_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the view `toy-queues`."""
    for views in (VIEWS, BUILT_IN_VIEWS):
        monkeypatch.setitem(views, "toy-queues", View(lambda: show_toy_queues))
    (argument,) = (parameter for parameter in show.params if parameter.name == "view")
    monkeypatch.setattr(argument, "type", click.Choice(list(VIEWS)))


@pytest.fixture
def run_path(new_run: Callable[..., RunBuilder], tmp_path: Path) -> str:
    new_run().write()
    return str(tmp_path / "run")


def test_text(run_path: str) -> None:
    result = CliRunner().invoke(command_line, ["show", run_path, "toy-queues"])
    assert result.exit_code == 0, result.output
    wait, title, *table = [line.split() for line in result.output.splitlines()]
    assert wait == ["wait", "1.5", "ms"]
    assert title == ["queues"]
    assert [word for line in table for word in line] == [
        *("mean", "queue", "depth", "held"),
        *("batches", "2.5", "3", "MiB"),
    ]


def test_json_has_the_plain_values(run_path: str) -> None:
    result = CliRunner().invoke(command_line, ["show", run_path, "toy-queues", "--json"])
    assert json.loads(result.output) == {
        "at": "toy-queues",
        "wait_ns": 1_500_000,
        "queues": [
            {
                "at": "toy-queues/queues/name=batches",
                "name": "batches",
                "depth": 2.5,
                "held_bytes": 3 << 20,
            }
        ],
    }


def test_the_document_of_the_api() -> None:
    document: Any = openapi(None)  # type: ignore[arg-type]
    operation = document["paths"]["/api/views/toy-queues"]["get"]
    assert operation["summary"] == "Toy queues"
    assert operation["description"] == "Show the queues of a toy."
    properties = document["components"]["schemas"]["ToyQueue"]["properties"]
    assert properties["depth"] == {"type": "number", "title": "mean depth", "x-unit": "count"}
    assert properties["held_bytes"] == {
        "type": "integer",
        "title": "held",
        "description": "Memory of its batches.",
        "x-unit": "bytes",
    }


def test_generated_types() -> None:
    files = runpy.run_path(str(GENERATOR))["files"](
        {"ToyQueuesView", "ToyQueue", "queues", "depth"}
    )
    assert '  "toy-queues": ToyQueuesView;\n' in files["views.ts"]
    assert "  /** Memory of its batches. */\n  held_bytes: number;\n" in files["views.ts"]
    labels = files["labels.ts"]
    assert '    queues: {"title":"queues","unit":"none"},\n' in labels
    assert '    depth: {"title":"mean depth","unit":"count"},\n' in labels
    assert "Verdict: {" not in labels, "the page names two structs"
    assert "held_bytes: {" not in labels, "and two fields"
