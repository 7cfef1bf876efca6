"""Workload contract of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.comparison.workload_contract import (
    GROUPS,
    ContractTerms,
    compare_contracts,
    compute_digest,
)
from stepscope.testing import RunBuilder

MODEL = {
    "model": 1,
    "name": "Net",
    "parameter_count": 1000,
    "tensor_count": 4,
    "shapes_digest": "abcd",
    "dtypes": ["float32"],
    "autocast": None,
}


def draw_run(
    path: Path, *, shapes: tuple[list[int], ...] = ([32, 8],), **changes: Any
) -> RunBuilder:
    builder = RunBuilder(path, cores=changes.pop("cores", 8))
    versions = {"python": "3.11", "torch": changes.pop("torch", "2.9"), "stepscope": str(path)}
    rank = builder.rank(workers=1, versions=versions)
    rank.fact("model", **(MODEL | changes))
    rank.fact("model", **MODEL | {"model": 2, "parameter_count": 5, "name": "Head"})
    for shape in shapes:
        inputs = [{"name": "0", "shape": shape, "dtype": "float32"}]
        rank.fact("model_inputs", model=1, inputs=inputs)
    rank.fact("model_inputs", model=2, inputs=[{"name": "0", "shape": [1], "dtype": "int64"}])
    rank.fact("optimizer", name="SGD", parameter_count=900, tensor_count=3, dtypes=["float32"])
    rank.draw("wait 5 | forward 10 | backward 10 | optimizer 5", 30)
    return builder


def compare(base: RunBuilder, candidate: RunBuilder) -> dict[str, ContractTerms]:
    return {terms.group: terms for terms in compare_contracts(base.open(), candidate.open())}


def test_the_same_work(tmp_path: Path) -> None:
    """The directory and the version of stepscope do not count."""
    groups = compare(draw_run(tmp_path / "a"), draw_run(tmp_path / "b"))
    assert list(groups) == list(GROUPS)
    for terms in groups.values():
        assert terms.standing == "same"
        assert terms.base_digest == terms.other_digest is not None
        assert terms.differences == []
        assert terms.same_count > 0


@pytest.mark.parametrize(
    ("group", "name", "changes"),
    [
        ("model", "parameters", {"parameter_count": 2000}),
        ("model", "parameter shapes", {"shapes_digest": "efgh"}),
        ("precision", "parameters", {"dtypes": ["bfloat16"]}),
        ("precision", "autocast", {"autocast": "bfloat16"}),
        ("batch", "input 0", {"shapes": ([64, 8],)}),
        ("hardware", "cores available", {"cores": 4}),
        ("software", "torch", {"torch": "2.10"}),
    ],
)
def test_different_work(tmp_path: Path, group: str, name: str, changes: dict[str, Any]) -> None:
    groups = compare(draw_run(tmp_path / "a"), draw_run(tmp_path / "b", **changes))
    assert [key for key, terms in groups.items() if terms.standing != "same"] == [group]
    terms = groups[group]
    assert terms.standing == "different"
    assert terms.base_digest != terms.other_digest
    assert [(item.name, item.standing) for item in terms.differences] == [(name, "different")]


def test_shapes_that_depend_on_the_data(tmp_path: Path) -> None:
    """The length of the text varies; the batch size is the same."""
    base = draw_run(tmp_path / "a", shapes=([32, 17], [32, 9]))
    groups = compare(base, draw_run(tmp_path / "b", shapes=([32, 12], [32, 30])))
    assert groups["batch"].standing == "same"


def test_properties_of_only_one_run_are_unknown(tmp_path: Path) -> None:
    bare = RunBuilder(tmp_path / "bare")
    bare.rank().draw("forward 10 | backward 10 | optimizer 5", 30)
    groups = compare(bare, draw_run(tmp_path / "b"))
    assert groups["model"].standing == "unknown"
    assert groups["model"].base_digest is None
    assert {item.standing for item in groups["model"].differences} == {"unknown"}


def test_empty_runs_are_unknown(tmp_path: Path) -> None:
    groups = compare(RunBuilder(tmp_path / "a"), RunBuilder(tmp_path / "b"))
    assert groups["model"].standing == groups["software"].standing == "unknown"


def test_digests() -> None:
    assert compute_digest({}) is None
    assert compute_digest({"a": "1"}) != compute_digest({"a": "2"})
