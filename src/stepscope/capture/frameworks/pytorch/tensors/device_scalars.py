"""Single numbers of a script, such as losses, as scalars of the run.

A number on a device is copied into a buffer there; the buffer is copied to pinned memory when it is
full, or older than a second, and read when that copy has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch

from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies
from stepscope.capture.guard import Probe

BUFFER_SIZE = 64
MAX_AGE_NS = 1_000_000_000
_Label = tuple[str, int]


class DeviceScalars:
    """Recorder of numbers that may be on devices. It never waits for one, except at the end.

    Args:
        probe: writes the scalars.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._buffers: dict[torch.device, _DeviceBuffer] = {}

    def add(self, name: str, number: torch.Tensor, t_ns: int | None = None) -> None:
        """Record a tensor of one element.

        Args:
            name: name of the scalar.
            number: real number, on any device but the meta device.
            t_ns: monotonic time; now by default.
        """
        t_ns = time.monotonic_ns() if t_ns is None else t_ns
        number = number.detach().reshape(())
        if number.device.type == "cpu":
            self._probe.scalar(name, number.item(), t_ns)
            return
        buffer = self._buffers.get(number.device)
        if buffer is None:
            buffer = self._buffers[number.device] = _DeviceBuffer(number.device)
        self._write_all(buffer.add((name, t_ns), number))

    def finish(self) -> None:
        """Write the numbers that are still on a device; the process ends."""
        for buffer in self._buffers.values():
            self._write_all(buffer.finish())

    def _write_all(self, copies: Iterable[tuple[list[_Label], list[torch.Tensor]]]) -> None:
        for labels, (values,) in copies:
            for (name, t_ns), value in zip(labels, values.tolist(), strict=False):
                self._probe.scalar(name, value, t_ns)


class _DeviceBuffer:
    """Numbers of one device that are not copied to the host yet."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(BUFFER_SIZE, dtype=torch.float64, device=device)
        self._labels: list[_Label] = []
        self._copies: HostCopies[list[_Label]] = HostCopies()

    def add(
        self, label: _Label, number: torch.Tensor
    ) -> Iterable[tuple[list[_Label], list[torch.Tensor]]]:
        """Add a number, and return the copies that have arrived on the host."""
        self._values[len(self._labels)].copy_(number)
        self._labels.append(label)
        is_old = label[1] - self._labels[0][1] >= MAX_AGE_NS
        if is_old or len(self._labels) == BUFFER_SIZE:
            self._start_copy()
        return self._copies.take_arrived()

    def finish(self) -> Iterable[tuple[list[_Label], list[torch.Tensor]]]:
        """Return the copies that arrive in time, because the process ends."""
        if self._labels:
            self._start_copy()
        return self._copies.await_arrival()

    def _start_copy(self) -> None:
        self._copies.start(self._labels, [self._values])
        self._labels = []
