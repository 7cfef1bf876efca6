"""Batches of NumPy arrays and of sequences; NumPy is used where the job has imported it."""

from __future__ import annotations

import sys

from stepscope.capture.batches.counting import (
    choose_image_stride,
    choose_stride,
    describe_channels,
    find_channel_axis,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stepscope.capture.matrices import Matrix

_BLOCK_ELEMENTS = 1 << 20


class ShapeError(ValueError):
    """Labels and predictions that do not belong together."""


def find_class_axis(labels: tuple[int, ...], predictions: tuple[int, ...]) -> int | None:
    """Return the axis of predictions that has a score for each class.

    It is the last one, or the second one as in `cross_entropy`.

    Returns:
        None if predictions are numbers of classes.

    Raises:
        ShapeError: the shapes do not belong together.
    """
    if predictions == labels:
        return None
    if len(predictions) == len(labels) + 1:
        if predictions[:-1] == labels:
            return len(labels)
        if predictions[:1] + predictions[2:] == labels:
            return 1
    raise ShapeError(
        f"predictions of shape {list(predictions)} do not belong to labels of shape {list(labels)}"
    )


def has_extra_axis(labels: tuple[int, ...], predictions: tuple[int, ...]) -> bool:
    """Return True if labels have a last dimension of size 1 in the place of that of the scores."""
    return len(labels) == len(predictions) > 1 and labels[-1] == 1 and labels != predictions


def read_classes(labels: Any, predictions: Any) -> tuple[list[float], list[float] | None, int]:
    """Return the numbers of the true and of the predicted classes, and the number of classes if
    there are scores of them, else 0.

    Raises:
        ShapeError: labels and predictions do not belong together.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return _read_lists(labels, predictions)
    labels = numpy.asarray(labels)
    predicted, class_count = None, 0
    if predictions is not None:
        predictions = numpy.asarray(predictions)
        if has_extra_axis(labels.shape, predictions.shape):
            labels = labels[..., 0]
        axis = find_class_axis(labels.shape, predictions.shape)
        if axis is not None:
            class_count = predictions.shape[axis]
    last_size = labels.shape[-1] if labels.ndim else 1
    stride = choose_stride(labels.size, last_size, class_count or 1)
    if predictions is not None:
        if class_count:
            scores = numpy.moveaxis(predictions, axis, -1)
            index = numpy.unravel_index(numpy.arange(0, labels.size, stride), labels.shape)
            scores = scores[index]
            predicted = scores[:, 0] if class_count == 1 else scores.argmax(-1)
        else:
            predicted = predictions.reshape(-1)[::stride]
    numbers = labels.reshape(-1)[::stride].tolist()
    return numbers, None if predicted is None else predicted.tolist(), class_count


def _read_lists(labels: Any, predictions: Any) -> tuple[list[float], list[float] | None, int]:
    numbers = list(_flatten(labels))
    stride = choose_stride(len(numbers), 1)
    if predictions is None:
        return numbers[::stride], None, 0
    rows = list(predictions)
    class_count = 0
    if rows and _is_sequence(rows[0]) and len(numbers) == len(rows):
        class_count = len(rows[0])
        rows = [max(range(len(row)), key=list(row).__getitem__) for row in rows]
    predicted = list(_flatten(rows))
    if len(predicted) != len(numbers):
        raise ShapeError(f"{len(predicted)} predictions do not belong to {len(numbers)} labels")
    return numbers[::stride], predicted[::stride], class_count


def read_tokens(inputs: Any) -> list[float] | None:
    """Return the tokens of a batch; None if the inputs are not whole numbers in at most three
    dimensions."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        values = list(_flatten(inputs))
        is_text = all(type(value) is int for value in values)
        return values[:: choose_stride(len(values), 1)] if is_text else None
    array = numpy.asarray(inputs)
    if array.dtype.kind not in "iu" or not 0 < array.ndim < 4:
        return None
    tokens: list[float] = array.reshape(-1)[:: choose_stride(array.size, array.shape[-1])].tolist()
    return tokens


def measure_channels(name: str, inputs: Any) -> list[Matrix]:
    """Describe the channels of a batch of images, an array of four dimensions; none for others."""
    numpy = sys.modules.get("numpy")
    if numpy is None or getattr(inputs, "ndim", 0) != 4:
        return []
    images = numpy.asarray(inputs)
    if images.dtype.kind not in "fiu" or not images.size:
        return []
    images = numpy.moveaxis(images, find_channel_axis(images.shape), 1)
    images = images[:: choose_image_stride(images.size)]
    count, channels = images.shape[:2]
    per_block = max(1, _BLOCK_ELEMENTS // max(1, images[0].size))
    sums = numpy.zeros((channels, 2))
    for start in range(0, count, per_block):
        block = images[start : start + per_block].astype(numpy.float64)
        sums[:, 0] += block.sum((0, 2, 3))
        sums[:, 1] += (block * block).sum((0, 2, 3))
    pixels = images.size // channels
    return describe_channels(name, count, pixels, sums.tolist())


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _flatten(values: Any) -> Iterator[Any]:
    for value in values:
        if _is_sequence(value):
            yield from _flatten(value)
        else:
            yield value
