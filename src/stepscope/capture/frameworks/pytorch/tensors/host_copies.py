"""Copies of device tensors to the host, which the training thread never waits for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch

MAX_WAIT_S = 2.0
"""Time that the end of the process waits for copies: the device may wait for a process that has
failed."""
POLL_S = 0.01

Label = TypeVar("Label")


def choose_device(devices: Iterable[torch.device]) -> torch.device:
    """Choose where tensors of several devices meet: the first that is not the host. A tensor that
    comes from it without waiting would be read on the host before it has arrived.

    >>> choose_device([torch.device("cpu"), torch.device("cuda:1"), torch.device("cuda:0")])
    device(type='cuda', index=1)
    """
    ordered = [*devices]
    return next((device for device in ordered if device.type != "cpu"), ordered[0])


class HostCopies(Generic[Label]):
    """Queue of copies, each with a label, in the order in which they were started."""

    def __init__(self) -> None:
        self._started: deque[tuple[Label, list[torch.Tensor], Any]] = deque()

    def __len__(self) -> int:
        return len(self._started)

    @property
    def labels(self) -> list[Label]:
        """Labels of the copies that have not arrived."""
        return [label for label, _, _ in self._started]

    def start(self, label: Label, tensors: Sequence[torch.Tensor]) -> None:
        """Start to copy tensors of one device, to pinned memory if it is a CUDA device."""
        copies = [
            torch.empty_like(tensor, device="cpu", pin_memory=tensor.device.type == "cuda").copy_(
                tensor, non_blocking=True
            )
            for tensor in tensors
        ]
        event = torch.Event(tensors[0].device)
        event.record()
        self._started.append((label, copies, event))

    def take_arrived(self) -> Iterator[tuple[Label, list[torch.Tensor]]]:
        """Yield the copies that have arrived on the host, and forget them."""
        while self._started and self._started[0][2].query():
            label, copies, _ = self._started.popleft()
            yield label, copies

    def await_arrival(self) -> Iterator[tuple[Label, list[torch.Tensor]]]:
        """Yield the copies that arrive within `MAX_WAIT_S`; the process ends."""
        until_s = time.monotonic() + MAX_WAIT_S
        while self._started and time.monotonic() < until_s:
            yield from self.take_arrived()
            time.sleep(POLL_S)
