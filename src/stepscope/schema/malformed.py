"""Errors of decoding JSON that somebody else may have written."""

from __future__ import annotations

import msgspec

MALFORMED_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised by msgspec for text that is not JSON of the expected type; the last one for text that is
nested more deeply than the interpreter's stack."""
