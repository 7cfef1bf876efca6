"""Copies of device tensors to the host: never waited for in a step, for a while at the end."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from stepscope.capture.frameworks.pytorch.tensors import host_copies
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies, choose_device


class Event:
    """Stand-in for an event of a device, which reaches it when the test says so."""

    reached = 0
    recorded = 0

    def __init__(self, device: torch.device) -> None:
        self._number = 0

    def record(self) -> None:
        Event.recorded += 1
        self._number = Event.recorded

    def query(self) -> bool:
        return self._number <= Event.reached


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> HostCopies[str]:
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(Event, "reached", 0)
    monkeypatch.setattr(Event, "recorded", 0)
    queue: HostCopies[str] = HostCopies()
    for number, label in enumerate("abc"):
        queue.start(label, [torch.full((2,), float(number)), torch.tensor([number])])
    return queue


def taken(arrived: Any) -> list[tuple[str, list[list[float]]]]:
    return [(label, [tensor.tolist() for tensor in tensors]) for label, tensors in arrived]


def test_copies_are_taken_in_order_as_they_arrive(copies: HostCopies[str]) -> None:
    assert taken(copies.take_arrived()) == []
    Event.reached = 2
    assert taken(copies.take_arrived()) == [("a", [[0, 0], [0]]), ("b", [[1, 1], [1]])]
    assert copies.labels == ["c"]


def test_the_end_does_not_wait_for_ever(
    copies: HostCopies[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_copies, "MAX_WAIT_S", 0.05)
    Event.reached = 1
    assert [label for label, _ in taken(copies.await_arrival())] == ["a"]
    assert copies.labels == ["b", "c"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("cpu", "cpu"), "cpu"),
        (("cpu", "cuda:1", "cuda:0"), "cuda:1"),
        (("cuda:0", "cpu"), "cuda:0"),
    ],
)
def test_tensors_of_several_devices_meet_on_none_that_waits(
    names: tuple[str, ...], expected: str
) -> None:
    assert choose_device(map(torch.device, names)) == torch.device(expected)
