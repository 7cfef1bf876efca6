"""Limit of the nesting of values that are decoded, kept and encoded again.

Decoders and encoders recurse, and fail with the depth that the stack happens to leave them: a value
that could be read might not be written. Far below that depth, either is certain.
"""

from __future__ import annotations

import re

import msgspec

MAX_NESTING = 200
"""Depth of any value that a recorder writes, many times over."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)


def check_nesting(text: bytes | memoryview) -> None:
    """Check that a JSON text is not nested too deeply.

    Raises:
        msgspec.DecodeError: it is.
    """
    content = bytes(text)
    if content.count(b"[") + content.count(b"{") <= MAX_NESTING:
        return
    depth = 0
    for match in _TOKEN.finditer(content):
        token = match.group()
        if token in {b"{", b"["}:
            depth += 1
            if depth > MAX_NESTING:
                raise msgspec.DecodeError(f"it is nested more than {MAX_NESTING} levels deep")
        elif token in {b"}", b"]"}:
            depth -= 1
