"""Standard streams of a command: present, and able to write every character in some form.

All text goes through here, that of click included. Documents for programs (JSON, CSV, Markdown,
XML) are written as bytes of UTF-8 whatever the terminal is.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path

_ERRORS = "stepscope.transliterate"
_ASCII = "stepscope_ascii"
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–−─·", "-"),  # noqa: RUF001 - hyphens, dashes, minus
        "—": "--",
        "…": "...",
        "×": "x",  # noqa: RUF001 - a multiplication sign
        "→": "->",
        "±": "+/-",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "≪": "<<",
        "µ": "u",
        "μ": "u",
        "σ": "sigma",  # noqa: RUF001 - a Greek letter
        "Σ": "sum",
        "²": "^2",
        "°": " deg ",
        "\xa0": " ",
        **dict.fromkeys("‘’", "'"),  # noqa: RUF001 - quotation marks
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("├└│", "|"),
        **dict(zip("▁▂▃▄▅▆▇█", ".:-=+*%#", strict=True)),  # levels of a curve, cells of a bar
        "▲": "^",
        "▼": "v",
        **{chr(0x2400 + code): f"^{chr(code ^ 0x40)}" for code in range(0x20)},
        "␡": "^?",
        "\ufffd": "?",
    }
)
"""Spellings in ASCII of what stepscope itself writes; names of users are escaped."""


def prepare_streams() -> None:
    """Make stdout and stderr safe to write to.

    Python sets a stream to None if it was closed when the process started. Output to it is
    discarded; the null device also occupies its file descriptor, so that no file of stepscope gets
    it.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit
    codecs.register_error(_ERRORS, _transliterate)
    codecs.register(_find_codec)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_ERRORS)


def _transliterate(error: UnicodeError) -> tuple[str | bytes, int]:
    """Spell the characters that a stream cannot encode.

    Blanks after a longer spelling make up for it, so that the columns of a table stay aligned.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    spelled = text.translate(_SPELLINGS).encode("ascii", "backslashreplace").decode()
    rest = error.object[error.end :]
    blanks = len(rest) - len(rest.lstrip(" "))
    return spelled, error.end + min(len(spelled) - len(text), max(0, blanks - 1))


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Find ASCII under a name that click does not know: it would write UTF-8 instead."""
    if name != _ASCII:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        incrementalencoder=ascii_codec.incrementalencoder,
        incrementaldecoder=ascii_codec.incrementaldecoder,
        name=_ASCII,
    )
