"""One call of an operator as recorded by the profiler, and its work as estimated by a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import msgspec

Family = Literal[
    "gemm",
    "convolution",
    "attention",
    "moe",
    "normalization",
    "elementwise",
    "reduction",
    "softmax",
    "embedding",
    "movement",
    "optimizer",
    "compiled",
]
MATRIX_FAMILIES: frozenset[Family] = frozenset({"gemm", "convolution", "attention", "moe"})
"""Families whose arithmetic is matrix products, the purpose of matrix units."""
Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "mxfp4", "int8"]
"""`mxfp4` is FP4 with one power of two as scale per block of 32 (OCP Microscaling Formats, 2023,
https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf); `fp4` is FP4
with other scales, such as NVFP4."""

ITEM_BYTES: dict[str, int] = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::Float8_e8m0fnu": 1,
    "c10::Float4_e2m1fn_x2": 1,
    "long int": 8,
    "long": 8,
    "long long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
    "unsigned long": 8,
    "long unsigned int": 8,
    "unsigned int": 4,
    "unsigned short": 2,
    "short unsigned int": 2,
    "c10::qint8": 1,
    "c10::quint8": 1,
    "c10::qint32": 4,
    "c10::complex<c10::Half>": 4,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
"""Bytes of one element by the type name in PyTorch's profiler; an FP4 element is two numbers."""
PRECISIONS: dict[str, Precision] = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "c10::Float4_e2m1fn_x2": "fp4",
    "signed char": "int8",
    "unsigned char": "int8",
    "c10::qint8": "int8",
    "c10::quint8": "int8",
}
"""Precision of matrix products by element type."""
SCALAR_TYPE_BYTES: dict[str, int] = {"5": 2, "6": 4, "7": 8, "15": 2, "23": 1, "24": 1}
"""Bytes of an element by number of a `torch.ScalarType`: half, float, double, bfloat16, FP8."""

MAX_DIMENSION = 1 << 40
"""Upper limit of the size of one dimension; no tensor is larger."""

_LIST_TYPES = {"TensorList", "GenericList"}
_KERNEL_ITEM = re.compile(r"OpaqueType<(\d+)|(c10::BFloat16|c10::Half|double|float)\b")


class NotModelledError(Exception):
    """A call without figures; the message is the reason."""


class Tensor(msgspec.Struct, frozen=True):
    """One tensor argument."""

    dims: tuple[int, ...]
    type: str
    strides: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return ITEM_BYTES[self.type]

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.count * self.item_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes stored in memory: an expanded dimension (stride 0) is stored once."""
        if self.strides is None or len(self.strides) != len(self.dims):
            return self.bytes
        stored = prod(size for size, stride in zip(self.dims, self.strides, strict=True) if stride)
        return stored * self.item_bytes if self.count else 0

    @property
    def precision(self) -> Precision:
        """Precision of a product of such matrices."""
        if self.type not in PRECISIONS:
            raise NotModelledError(f"matrix products of {self.type} are not modelled")
        return PRECISIONS[self.type]

    @property
    def arithmetic(self) -> Precision:
        """Precision of work outside matrix units; integers are assumed to run at the FP32 rate."""
        return PRECISIONS.get(self.type, "fp32")


class BatchLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the sequences of one batch, with q new tokens and k tokens each."""

    queries: int
    """Sum of q."""
    keys: int
    """Sum of k, which includes the new tokens."""
    squares: int
    """Sum of q²."""
    products: int
    """Sum of q k."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of one call, position by position."""

    name: str
    dims: Sequence[Any]
    types: Sequence[str]
    strides: Sequence[Any] = ()
    values: Sequence[str] = ()
    kernel: str | None = None
    """Name of a kernel that the call launched itself: the only source for the element type of a
    list of tensors, which profilers do not record."""
    batch: BatchLengths | None = None
    """Lengths of the sequences, if an inference server annotated the step with them."""

    def optional(self, position: int) -> Tensor | None:
        """Tensor at a position, None without one."""
        if position >= len(self.types) or self.types[position] not in ITEM_BYTES:
            return None
        dims = self.dims[position]
        strides = self.strides[position] if position < len(self.strides) else None
        return Tensor(
            _check_shape(dims),
            self.types[position],
            tuple(strides) if strides is not None else None,
        )

    def tensor(self, position: int) -> Tensor:
        """Tensor at a position."""
        tensor = self.optional(position)
        if tensor is None:
            raise NotModelledError(f"argument {position} is not a tensor of a known element type")
        return tensor

    def matrix(self, position: int, rank: int) -> Tensor:
        """Tensor at a position, with `rank` dimensions."""
        tensor = self.tensor(position)
        if len(tensor.dims) != rank:
            raise NotModelledError(f"argument {position} does not have {rank} dimensions")
        return tensor

    def tensors(self, start: int = 0) -> list[Tensor]:
        """Return all tensors from a position on."""
        tensors = (self.optional(position) for position in range(start, len(self.types)))
        return [tensor for tensor in tensors if tensor is not None]

    def tensor_list(self, position: int) -> list[Tensor]:
        """Return the tensors of a list, with the element type inferred from the kernel."""
        if position >= len(self.types) or self.types[position] not in _LIST_TYPES:
            raise NotModelledError(f"argument {position} is not a list of tensors")
        sizes = self.dims[position]
        if not sizes or not all(isinstance(size, list) for size in sizes):
            raise NotModelledError("the shapes inside a list of tensors were not recorded")
        item_type = _parse_item_type(self.kernel)
        strides = (self.strides[position] if position < len(self.strides) else None) or ()
        has_strides = len(strides) == len(sizes)
        return [
            Tensor(_check_shape(size), item_type, tuple(strides[i]) if has_strides else None)
            for i, size in enumerate(sizes)
        ]

    def value(self, position: int) -> str | None:
        """Scalar at a position as text, None if it was left at its default."""
        if not self.values:
            raise NotModelledError("the values of scalar arguments were not recorded")
        text = self.values[position] if position < len(self.values) else ""
        return text if text not in {"", "None"} else None

    def flag(self, position: int) -> bool:
        """Boolean at a position; False if it was left at its default."""
        text = self.value(position)
        if text not in {None, "True", "False"}:
            raise NotModelledError(f"argument {position} is not a boolean")
        return text == "True"

    def integer(self, position: int) -> int:
        """Integer at a position."""
        text = self.value(position)
        if text is None or not text.lstrip("-").isdigit():
            raise NotModelledError(f"argument {position} is not an integer")
        return int(text)

    def items(self, position: int) -> list[str] | None:
        """Parse a list of scalars such as "[2, 2]"; None if it is absent."""
        text = self.value(position)
        if text is None or not text.startswith("["):
            return None
        return [item.strip() for item in text[1:-1].split(",") if item.strip()]

    def integers(self, position: int) -> list[int] | None:
        """List of integers at a position; None if it is absent."""
        items = self.items(position)
        return [int(item) for item in items] if items is not None else None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Minimum work of one call."""

    flops: int | None
    """Floating-point (or integer) operations; a multiply-add is two. None if only the bytes are
    known."""
    bytes: int
    """Bytes read from and written to device memory, if every tensor is transferred once."""
    precision: Precision | None
    """None if the arguments do not determine it."""
    matrix: bool = False
    """True if matrix units do the arithmetic."""
    note: str | None = None
    """Assumption behind an estimate."""


def _check_shape(dims: Sequence[Any]) -> tuple[int, ...]:
    if not all(type(size) is int and 0 <= size <= MAX_DIMENSION for size in dims):
        raise NotModelledError("the recorded shape is not valid for a tensor")
    return tuple(dims)


def _parse_item_type(kernel: str | None) -> str:
    """Parse the element type of a list of tensors from the name of a kernel."""
    match = _KERNEL_ITEM.search(kernel or "")
    if match is None:
        raise NotModelledError("the element type of a list of tensors was not recorded")
    size, name = match.groups()
    if name:
        return str(name)
    by_size = {"8": "double", "4": "float", "2": "c10::BFloat16", "1": "signed char"}
    if size not in by_size:
        raise NotModelledError("the element type of a list of tensors is unknown")
    return by_size[size]
