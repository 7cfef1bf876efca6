"""Names of parameters: kept while they live, and found quickly among thousands."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("torch")

import torch

from stepscope.capture.frameworks.pytorch.tensors.selection import ParameterNames


def create(count: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(3)) for _ in range(count)]


def test_parameters_without_a_module_are_numbered() -> None:
    names = ParameterNames()
    parameters = create(5)
    expected = ["parameter_3", *(f"parameter_3#{number}" for number in range(2, 6))]
    assert [names.find(parameter) for parameter in parameters] == expected
    assert [names.find(parameter) for parameter in parameters] == expected
    del parameters[1:3]
    gc.collect()
    assert [names.find(parameter) for parameter in create(3)] == [
        "parameter_3#2", "parameter_3#3", "parameter_3#6",
    ]  # fmt: skip


def test_of_a_freed_parameter_nothing_is_kept() -> None:
    """A script that makes a model in every step keeps no more than one."""
    names = ParameterNames()
    sizes = set()
    for _ in range(4):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        loose = create(3)
        names.add(model)
        assert names.find(model[1].bias) == "1.bias"
        assert names.find(loose[2]) == "parameter_3"
        sizes.add((len(names._names), len(names._placeholders), len(names._owners)))
        del model, loose
        gc.collect()
    assert sizes == {(4, 1, 5)}
    assert not names._names
    assert not names._owners


def test_a_name_is_found_without_asking_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ParameterNames()
    parameters = create(500)
    counted = _CountedLookups()
    monkeypatch.setattr(names, "_owners", counted)
    for parameter in parameters:
        names.find(parameter)
    assert counted.lookup_count <= 3 * len(parameters)


class _CountedLookups(dict):  # type: ignore[type-arg]
    lookup_count = 0

    def __contains__(self, key: object) -> bool:
        self.lookup_count += 1
        return super().__contains__(key)
