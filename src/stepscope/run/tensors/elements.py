"""Elements of tensors that a run holds (option `--tensors-raw`)."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import errors
from stepscope.run.job.times import find_current_processes
from stepscope.run.model.run import Run

FLOAT8_FORMATS = {
    "float8_e4m3fn": (4, 7, False, False),
    "float8_e4m3fnuz": (4, 8, False, True),
    "float8_e5m2": (5, 15, True, False),
    "float8_e5m2fnuz": (5, 16, False, True),
}
"""Bits of the exponent, its bias, whether the largest exponent is that of infinity and NaN as in
IEEE 754, and whether minus zero stands for NaN: https://arxiv.org/abs/2209.05433 and
https://arxiv.org/abs/2206.02915."""


class TensorElements(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of one tensor of one process at one step, which are not read yet."""

    name: str
    rank: int
    mode: str
    step: int
    shape: tuple[int, ...]
    dtype: str
    """Type of the elements in PyTorch."""
    key: tuple[str, str, int]
    """Process, log and number of the row."""


def list_elements(
    run: Run, names: Collection[str], *, rank: int | None = None
) -> list[TensorElements]:
    """List the recorded elements of tensors by step. Of a job that was restarted, those of the
    incarnation whose ranks the run shows.

    Args:
        run: the run.
        names: names of tensors.
        rank: only this rank; None for all.
    """
    if not names or not run.reader.has("tensor_elements"):
        return []
    ranks = {info.process: info.rank or 0 for info in run.processes}
    rows: dict[str, Any] = run.reader.table(
        "tensor_elements",
        ("process", "log", "seq", "tensor", "mode", "step", "shape", "dtype"),
        condition=f"{run.period.condition('t_ns')} AND tensor IN ({', '.join('?' * len(names))})",
        parameters=tuple(names),
        order_by="step, process, seq",
    )
    columns = (rows[name].tolist() for name in rows)
    elements = [
        TensorElements(
            name=name,
            rank=ranks.get(process, 0),
            mode=mode,
            step=step,
            shape=tuple(int(size) for size in shape.split("x") if size),
            dtype=dtype,
            key=(process, log, seq),
        )
        for process, log, seq, name, mode, step, shape, dtype in zip(*columns, strict=True)
    ]
    current = find_current_processes(run)
    earlier = {process.process for process in run.processes} - current
    return [
        element
        for element in elements
        if rank in {None, element.rank} and element.key[0] not in earlier
    ]


def read_elements(run: Run, elements: TensorElements) -> NDArray[Any]:
    """Read the elements of a tensor.

    Returns:
        An array in the type of the tensor. NumPy has no bfloat16 and no 8-bit floating-point
        numbers: those are float32, which has all of their values.

    Raises:
        DamagedRunError: the file is missing or damaged.
    """
    content = run.reader.tensor(*elements.key)
    try:
        stored = np.load(io.BytesIO(content), allow_pickle=False)
        if elements.dtype == "bfloat16" and stored.dtype == np.uint16:
            widened: NDArray[np.float32] = (stored.astype(np.uint32) << 16).view(np.float32)
            return widened
        if elements.dtype in FLOAT8_FORMATS:
            decoded: NDArray[np.float32] = float8_values(elements.dtype)[stored]
            return decoded.reshape(elements.shape)
        array: NDArray[Any] = stored.reshape(elements.shape)
        return array
    except (ValueError, EOFError, IndexError) as error:
        raise errors.DamagedRunError(
            f"The elements of {elements.name} at step {elements.step} cannot be read: {error}."
        ) from error


def float8_values(dtype: str) -> NDArray[np.float32]:
    """Return the values of the 256 numbers of an 8-bit type, by their bits."""
    exponent_bits, bias, has_infinity, has_unsigned_zero = FLOAT8_FORMATS[dtype]
    fraction_bits = 7 - exponent_bits
    bits = np.arange(256)
    exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (bits & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    magnitude = np.where(
        exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias)
    )
    if has_infinity:
        special = np.where(fraction == 0, np.inf, np.nan)
        magnitude = np.where(exponent == (1 << exponent_bits) - 1, special, magnitude)
    elif not has_unsigned_zero:
        magnitude = np.where(bits & 127 == 127, np.nan, magnitude)
    values = np.where(bits >> 7 == 1, -magnitude, magnitude)
    if has_unsigned_zero:
        values[128] = np.nan
    return values.astype(np.float32)
