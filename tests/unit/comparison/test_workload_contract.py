"""What two runs say of their work, and whether it is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.comparison.workload_contract import GROUPS, GroupTerms, contract, digest_of
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


def run(path: Path, *, shapes: tuple[list[int], ...] = ([32, 8],), **changes: Any) -> RunBuilder:
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


def compared(base: RunBuilder, other: RunBuilder) -> dict[str, GroupTerms]:
    return {each.group: each for each in contract(base.open(), other.open())}


def test_the_same_work(tmp_path: Path) -> None:
    """In another directory and by another stepscope, which is no part of it."""
    found = compared(run(tmp_path / "a"), run(tmp_path / "b"))
    assert list(found) == list(GROUPS)
    for terms in found.values():
        assert terms.standing == "same"
        assert terms.base_digest == terms.other_digest is not None
        assert terms.items == []
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
def test_other_work(tmp_path: Path, group: str, name: str, changes: dict[str, Any]) -> None:
    found = compared(run(tmp_path / "a"), run(tmp_path / "b", **changes))
    assert [each for each, terms in found.items() if terms.standing != "same"] == [group]
    terms = found[group]
    assert terms.standing == "different"
    assert terms.base_digest != terms.other_digest
    assert [(item.name, item.standing) for item in terms.items] == [(name, "different")]


def test_shapes_that_depend_on_the_data(tmp_path: Path) -> None:
    """Text is as long as it is: only the batch size is the same in both."""
    base = run(tmp_path / "a", shapes=([32, 17], [32, 9]))
    found = compared(base, run(tmp_path / "b", shapes=([32, 12], [32, 30])))
    assert found["batch"].standing == "same"


def test_what_only_one_run_says_is_unknown(tmp_path: Path) -> None:
    bare = RunBuilder(tmp_path / "bare")
    bare.rank().draw("forward 10 | backward 10 | optimizer 5", 30)
    found = compared(bare, run(tmp_path / "b"))
    assert found["model"].standing == "unknown"
    assert found["model"].base_digest is None
    assert {item.standing for item in found["model"].items} == {"unknown"}


def test_nothing_is_known_of_nothing(tmp_path: Path) -> None:
    found = compared(RunBuilder(tmp_path / "a"), RunBuilder(tmp_path / "b"))
    assert found["model"].standing == found["software"].standing == "unknown"


def test_digests() -> None:
    assert digest_of({}) is None
    assert digest_of({"a": "1"}) != digest_of({"a": "2"})
