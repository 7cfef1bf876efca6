"""Binary format of records and segments.

A record is four native 64-bit words:

    word 0   start, monotonic nanoseconds; zero until the record is readable
    word 1   end, monotonic nanoseconds; zero while the interval is open, and for a mark;
             of a number: its step plus one, zero without a step
    word 2   meta: interned name << 32 | kind << 24 | flags << 16 | depth
    word 3   value: an integer, the bits of a double, or two packed numbers, by kind

The writer fills words 1 to 3 first and word 0 last, each with one aligned 8-byte store, so a
process killed at any instruction leaves either a complete record or none. An interval that was
open when its process died keeps a zero end.

A segment is a 64-byte header followed by records:

    word 0   magic                      word 4   anchor, monotonic ns
    word 1   format version             word 5   anchor, epoch ns
    word 2   sequence of first record   word 6   unused
    word 3   native thread id           word 7   unused
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` would cost the job milliseconds
    from typing import Final

RECORD_WORDS = 4
RECORD_BYTES = 8 * RECORD_WORDS
HEADER_WORDS = 8
HEADER_BYTES = 8 * HEADER_WORDS
SEGMENT_BYTES = 128 * 1024
SEGMENT_RECORDS = (SEGMENT_BYTES - HEADER_BYTES) // RECORD_BYTES

MAGIC = int.from_bytes(b"stepspan", "little")
FORMAT_VERSION = 1
FIRST_SEQUENCE_WORD = 2
THREAD_WORD = 3
ANCHOR_MONOTONIC_WORD = 4
ANCHOR_EPOCH_WORD = 5


CALLBACK_PREFIX = "callback "
"""Start of the names of annotations that are calls of a trainer's callback or logger."""
UNFILTERED_LOSS = "loss/unfiltered"
"""Name of the loss of a step where the trainer of Transformers logs a finite one instead."""


class Kind:
    """Kind of a record. Kinds from `STACK` on are not intervals and go to separate tables.

    Plain integers, not an enumeration: hashing an enumeration member runs Python code, which
    would double the cost of a span.
    """

    ANNOTATION: Final = 1
    STEP: Final = 2
    MODE: Final = 3
    DATA_WAIT: Final = 4
    LOADER_START: Final = 5
    FORWARD: Final = 6
    BACKWARD: Final = 7
    OPTIMIZER: Final = 8
    H2D: Final = 9
    COMMUNICATION: Final = 10
    CHECKPOINT: Final = 11
    FETCH: Final = 12
    SAMPLES: Final = 13
    SAMPLE: Final = 14
    TRANSFORM: Final = 15
    COLLATE: Final = 16
    PIN: Final = 17
    DEVICE: Final = 18
    WINDOW: Final = 19
    COMPILE: Final = 20
    GARBAGE_COLLECTION: Final = 21
    RUN_QUEUE: Final = 22
    DISPATCH: Final = 23
    DEVICE_WAIT: Final = 24
    CHECKPOINT_LOAD: Final = 25
    RENDEZVOUS: Final = 26
    STACK: Final = 100
    """A stack sample. name: the stack; value: thread id << 32 | line."""
    SCALAR: Final = 101
    """A number logged by the user. value: the bits of a double."""
    METRIC: Final = 102
    """A sample of the node. name: metric|device; value: the bits of a double."""
    TENSOR: Final = 103
    """Only of names: a tensor in a log of rows."""


class Flag:
    """Bits of the flags byte."""

    ASYNC: Final = 1
    NO_GRAD: Final = 2
    NO_RESULT: Final = 4
    EVAL_MODE: Final = 8
    """Of a forward pass: the module was in evaluation mode (`module.eval()`)."""
    MARK: Final = 16
    """The record is an instant: a zero end does not mean that it is open."""
    SIZED: Final = 32
    """Of a forward pass: the value is that of `pack_forward`."""
    NO_OPTIMIZER: Final = 64
    """Of a forward or backward pass: the process has created no optimizer."""
    NEW_MODEL: Final = 128
    """Of an optimizer step: the first of a model that nothing before it belongs to."""


SIZE_BITS: Final = 44
"""Bits of a forward pass's value for the number of elements; the others identify the module."""
_IDENTITY_MASK = 0x7FFFF0  # 19 bits above those of the alignment; the value stays positive
_ADDRESS_SHIFT = SIZE_BITS - 4


def pack_forward(address: int, element_count: int) -> int:
    """Return the value of a forward pass.

    Args:
        address: address of the module; a part of it identifies the module.
        element_count: elements of its first tensor, 0 if unknown.
    """
    return (address & _IDENTITY_MASK) << _ADDRESS_SHIFT | element_count


def make_meta(name: int, kind: int, flags: int = 0) -> int:
    """Return the meta word without its depth.

    Args:
        name: id of the interned name, 0 for none, below 2**32.
        kind: a value of `Kind`.
        flags: bits of `Flag`.
    """
    return name << 32 | kind << 24 | flags << 16
