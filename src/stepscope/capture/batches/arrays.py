"""Batches of NumPy arrays and of sequences, counted as small matrices; NumPy only if imported.

Counts of the classes and tokens of a batch, as small matrices. Numbers are counted one by one: a
batch has at most `MAX_ELEMENTS`, and a call costs milliseconds at most.
"""

from __future__ import annotations

import math
import sys
from collections import Counter

from stepscope.capture.matrices import Matrix

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

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
    return isinstance(value, (list, tuple))


def _flatten(values: Any) -> Iterator[Any]:
    for value in values:
        if _is_sequence(value):
            yield from _flatten(value)
        else:
            yield value


MAX_ELEMENTS = 20_000
"""Labels or tokens of a call that are counted; of more every k-th is."""
MAX_SCORES = 1 << 24
"""Scores of classes that are read in a call: finding the largest of each label takes 3 ns each."""
MAX_IMAGE_VALUES = 1 << 22
"""Values of the images of a call that are read: 5 ns each. Of more, every k-th image is."""
MAX_CLASSES = 50
"""Classes of a confusion matrix: it is recorded if the numbers of all classes are below."""
MAX_COUNTED_CLASSES = 1000
"""Classes of a call that are counted by name, the most frequent ones; the others are one row."""
MAX_TOKENS = 100
"""Tokens of a call that are counted by name, the most frequent ones; the others are one row."""
OTHER_CLASSES, OTHER_TOKENS = "(other classes)", "(other tokens)"


class NoClassesError(ValueError):
    """Predictions that are no numbers of classes."""


def choose_stride(element_count: int, last_size: int, class_count: int = 1) -> int:
    """Return k so that every k-th element is counted.

    Args:
        element_count: number of elements.
        last_size: size of the last dimension.
        class_count: scores that are read for each element.

    It has no factor in common with the last dimension, whose positions would else not all be seen.

    >>> choose_stride(20_000, 100), choose_stride(40_000, 100), choose_stride(40_000, 0)
    (1, 3, 2)
    """
    scores = element_count * class_count
    stride = max(1, -(-element_count // MAX_ELEMENTS), -(-scores // MAX_SCORES))
    while last_size > 1 and math.gcd(stride, last_size) > 1:
        stride += 1
    return stride


def choose_image_stride(value_count: int) -> int:
    """Return k so that every k-th of the images is read, at least the first one.

    >>> choose_image_stride(64 * 3 * 32 * 32), choose_image_stride(64 * 3 * 512 * 512)
    (1, 12)
    """
    return -(-value_count // MAX_IMAGE_VALUES)


class ClassCounter:
    """Counter of the classes under one name."""

    def __init__(self) -> None:
        self._has_confusion = True
        """No class was seen whose number is too large for a matrix."""

    def count(
        self,
        name: str,
        labels: Sequence[float],
        predicted: Sequence[float] | None,
        *,
        has_labels: bool = True,
        class_count: int = 0,
    ) -> list[Matrix]:
        """Count the labels and predictions of a call.

        Labels that are negative or no whole number are ignored, such as -100.

        Args:
            name: name of the data.
            labels: numbers of the true classes.
            predicted: numbers of the predicted classes.
            has_labels: the counts of labels are recorded, not the confusion matrix alone.
            class_count: number of all classes; 0 if unknown.

        Raises:
            NoClassesError: a prediction is no number of a class.
        """
        if predicted is None:
            true_counts = Counter(int(label) for label in labels if is_class(label))
            return [_list_labels(name, true_counts, None)] if has_labels and true_counts else []
        pairs: Counter[tuple[int, int]] = Counter()
        for (label, prediction), number in Counter(zip(labels, predicted)).items():
            if is_class(label):
                if not is_class(prediction):
                    raise NoClassesError(f"{prediction:g} is not the number of a class")
                pairs[int(label), int(prediction)] += number
        if not pairs:
            return []
        matrices = []
        if has_labels:
            counts: Counter[int] = Counter()
            wrong: Counter[int] = Counter()
            for (label, prediction), number in pairs.items():
                counts[label] += number
                wrong[label] += number if label != prediction else 0
            matrices.append(_list_labels(name, counts, wrong))
        classes = sorted({number for pair in pairs for number in pair})
        if class_count > MAX_CLASSES or classes[-1] >= MAX_CLASSES:
            self._has_confusion = False
        if self._has_confusion:
            titles = [str(number) for number in classes]
            values = [pairs[label, prediction] for label in classes for prediction in classes]
            confusion = f"batch_confusion/{name}"
            matrices.append(
                Matrix(confusion, "predictions", rows=titles, columns=titles, values=values)
            )
        return matrices


def is_class(value: float) -> bool:
    """Return True for a whole number that is not negative."""
    return value >= 0 and value == value // 1  # false for NaN and infinity


def _list_labels(name: str, counts: Counter[int], wrong: Counter[int] | None) -> Matrix:
    listed, rest = _split(counts, MAX_COUNTED_CLASSES)
    rows = [(str(number), counts[number], wrong and wrong[number]) for number in sorted(listed)]
    if rest:
        other_wrong = wrong and sum(wrong[number] for number in rest)
        rows.append((OTHER_CLASSES, sum(counts[number] for number in rest), other_wrong))
    columns = ["count"] if wrong is None else ["count", "mispredicted"]
    values = (number or 0 for _, *numbers in rows for number in numbers[: len(columns)])
    titles = [title for title, *_ in rows]
    return Matrix(f"labels/{name}", "labels", rows=titles, columns=columns, values=values)


def count_tokens(name: str, tokens: Iterable[float]) -> list[Matrix]:
    """Count the tokens of a call, the most frequent first."""
    counts = Counter(int(token) for token in tokens)
    if not counts:
        return []
    listed, rest = _split(counts, MAX_TOKENS)
    rows = [(str(token), counts[token]) for token in listed]
    if rest:
        rows.append((OTHER_TOKENS, sum(counts[token] for token in rest)))
    titles, values = [title for title, _ in rows], [number for _, number in rows]
    return [Matrix(f"tokens/{name}", "inputs", rows=titles, columns=["count"], values=values)]


def _split(counts: Counter[int], limit: int) -> tuple[list[int], list[int]]:
    """Return the most frequent numbers, of equal ones the smallest, and the others."""
    ranked = sorted(counts, key=lambda number: (-counts[number], number))
    return ranked[:limit], ranked[limit:]


def describe_channels(
    name: str, image_count: int, pixel_count: int, sums: Sequence[Sequence[float]]
) -> list[Matrix]:
    """Describe the channels of images.

    Args:
        name: name of the data.
        image_count: number of images.
        pixel_count: pixels of all images.
        sums: of each channel the sum of the values and of their squares.
    """
    values: list[float] = []
    for total, square_sum in sums:
        mean = total / pixel_count
        variance = square_sum / pixel_count - mean * mean
        values += (image_count, mean, math.sqrt(variance) if variance > 0 else 0 * variance)
    rows = [str(number) for number in range(len(sums))]
    columns = ["image_count", "mean", "std"]
    return [Matrix(f"channels/{name}", "inputs", rows=rows, columns=columns, values=values)]


def find_channel_axis(shape: Sequence[int]) -> int:
    """Return the axis of the channels of images: the second, or the last if only that has the size
    of colors.

    >>> find_channel_axis((8, 3, 32, 32)), find_channel_axis((8, 32, 32, 3))
    (1, 3)
    """
    colors = (1, 3, 4)
    return 3 if shape[3] in colors and shape[1] not in colors else 1
