"""Names of source files, of whichever machine and interpreter."""

from __future__ import annotations

import re

_SITE = re.compile(r".*[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")
_STANDARD = re.compile(r"~|<frozen .*|.*[/\\]lib(?:64)?[/\\]python\d[^/\\]*[/\\].*|")


def library_of(file: str) -> str:
    """Name the library of a source file; empty for the user's code.

    >>> library_of("/usr/lib/python3/dist-packages/torch/nn/functional.py")
    'torch'
    >>> library_of("/usr/lib64/python3.12/threading.py")
    'python'
    >>> library_of("/opt/ml/code/train.py")
    ''
    """
    match = _SITE.match(file)
    if match is not None:
        return match[1]
    return "python" if _STANDARD.fullmatch(file) else ""
