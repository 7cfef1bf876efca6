"""Batches of PyTorch tensors that the script hands over with `stepscope.record`, or that a model
takes.

At most `MAX_ELEMENTS` numbers of a batch are copied to the host; those of a device are copied
without waiting, and counted at a later call.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stepscope.capture import session
from stepscope.capture.batches.arrays import (
    choose_image_stride,
    choose_stride,
    count_tokens,
    describe_channels,
    find_channel_axis,
    find_class_axis,
    has_extra_axis,
)
from stepscope.capture.frameworks.pytorch.patching import without_functions
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies, choose_device
from stepscope.capture.frameworks.pytorch.tensors.selection import is_plain_execution
from stepscope.capture.guard import Probe
from stepscope.capture.matrices import write_matrices

MAX_PENDING = 64
"""Batches that may wait for the device; a later one is left out."""
_BLOCK_ELEMENTS = 1 << 20
_TOKEN_TYPES = {torch.int64, torch.int32, torch.int16}

_probe = Probe("batches on devices")
_Store = Callable[[torch.Tensor], None]
_copies: HostCopies[_Store] = HostCopies()
"""Copies with what is done with them on the host."""


def add_classes(
    count: Callable[..., None], name: str, labels: Any, predictions: Any, *, step: int, mode: str
) -> None:
    """Record the classes of a batch.

    Args:
        count: `BatchRecorder.count_classes`.
        name: name of the data.
        labels: true classes.
        predictions: predicted classes, or a score for each class; None if there are none.
        step, mode: labels of the rows.

    Raises:
        ShapeError: labels and predictions do not belong together.
    """
    if not is_plain_execution():
        return
    with torch.no_grad(), without_functions():
        labels = _as_tensor(labels)
        if predictions is not None:
            predictions = _as_tensor(predictions)
            device = choose_device((predictions.device, labels.device))
            labels = labels.to(device, non_blocking=True)
            predictions = predictions.to(device, non_blocking=True)
        if labels.is_complex() or labels.is_meta:
            return
        numbers, class_count = _find_classes(labels, predictions)
    t_ns = time.monotonic_ns()

    def store(copied: torch.Tensor) -> None:
        true_classes, *predicted = copied.tolist()
        predicted_classes = predicted[0] if predicted else None
        count(name, true_classes, predicted_classes, class_count, step=step, mode=mode, t_ns=t_ns)

    _store(numbers, store)


def _find_classes(
    labels: torch.Tensor, predictions: torch.Tensor | None
) -> tuple[torch.Tensor, int]:
    """Return a row of true and one of predicted classes, and the number of classes if there are
    scores of them, else 0."""
    if predictions is not None and has_extra_axis(tuple(labels.shape), tuple(predictions.shape)):
        labels = labels.squeeze(-1)
    axis, class_count = None, 0
    if predictions is not None:
        axis = find_class_axis(tuple(labels.shape), tuple(predictions.shape))
        class_count = 0 if axis is None else predictions.shape[axis]
    last_size = labels.shape[-1] if labels.dim() else 1
    stride = choose_stride(labels.numel(), last_size, class_count or 1)
    rows = [labels.reshape(-1)[::stride].double()]
    if predictions is not None:
        if axis is None:
            rows.append(predictions.reshape(-1)[::stride].double())
        else:
            scores = predictions.movedim(axis, -1)
            if stride > 1:
                scores = scores[_index(labels, stride)]
            predicted = scores.squeeze(-1) if class_count == 1 else scores.argmax(-1)
            rows.append(predicted.reshape(-1).double())
    return torch.stack(rows), class_count


def _index(tensor: torch.Tensor, stride: int) -> tuple[torch.Tensor, ...]:
    """Return the positions of every k-th element; `torch.unravel_index` waits for the device."""
    positions = torch.arange(0, tensor.numel(), stride, device=tensor.device)
    index: list[torch.Tensor] = []
    for size in reversed(tensor.shape):
        index.insert(0, positions % size)
        positions = positions // size
    return tuple(index) if index else (positions,)


def add_inputs(name: str, inputs: torch.Tensor, *, step: int, mode: str) -> None:
    """Record the tokens of a batch, if it has whole numbers in at most three dimensions, or the
    channels of its images, if it has four dimensions."""
    if not is_plain_execution() or inputs.is_meta or not inputs.numel():
        return
    if inputs.layout is not torch.strided or inputs.is_quantized or inputs.is_complex():
        return
    t_ns = time.monotonic_ns()
    with torch.no_grad(), without_functions():
        values = inputs.detach()
        if values.dtype in _TOKEN_TYPES and 0 < values.dim() < 4:
            stride = choose_stride(values.numel(), values.shape[-1])

            def store_tokens(copied: torch.Tensor) -> None:
                matrices = count_tokens(name, copied.tolist())
                write_matrices(matrices, step=step, mode=mode, t_ns=t_ns)

            _store(values.reshape(-1)[::stride].contiguous(), store_tokens)
        elif values.dim() == 4 and values.dtype is not torch.bool:
            images = values.movedim(find_channel_axis(values.shape), 1)
            images = images[:: choose_image_stride(images.numel())]
            count, pixel_count = len(images), images.numel() // images.shape[1]

            def store_channels(copied: torch.Tensor) -> None:
                matrices = describe_channels(name, count, pixel_count, copied.tolist())
                write_matrices(matrices, step=step, mode=mode, t_ns=t_ns)

            _store(_sum_channels(images), store_channels)


def _sum_channels(images: torch.Tensor) -> torch.Tensor:
    """Return for each channel the sum of the values and of their squares, in double precision."""
    sums = torch.zeros(images.shape[1], 2, dtype=torch.float64, device=images.device)
    for block in images.split(max(1, _BLOCK_ELEMENTS // max(1, images[0].numel()))):
        wide = block.double()
        sums[:, 0] += wide.sum((0, 2, 3))
        sums[:, 1] += wide.square_().sum((0, 2, 3))
    return sums


def _as_tensor(values: Any) -> torch.Tensor:
    tensor = values if isinstance(values, torch.Tensor) else torch.as_tensor(values)
    return tensor.detach()


def _store(numbers: torch.Tensor, store: _Store) -> None:
    """Hand numbers over when they are on the host, and earlier ones that have arrived."""
    _store_all(_copies.take_arrived())
    if numbers.device.type == "cpu":
        store(numbers)
    elif len(_copies) < MAX_PENDING:
        _copies.start(store, [numbers])
    elif (current := session.current()) is not None:
        current.row_log.drop(1)


def _store_all(arrived: Iterable[tuple[_Store, list[torch.Tensor]]]) -> None:
    for store, (numbers,) in arrived:
        store(numbers)


@_probe.protect
def finish() -> None:
    """Record the batches that are still on a device; the process ends."""
    _store_all(_copies.await_arrival())


atexit.register(finish)
