"""Masking of secrets on command lines and in text, before they are stored."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "****"

_SECRET_NAME = re.compile(
    r"(?i)((password|passwd|passphrase|secret|credential)s?|token|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|auth)$"
)
_SECRET_VALUE = re.compile(
    r"(sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}[A-Za-z0-9._-]*)"
)
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):([^/@\s]+)@")


_SECRET_INSIDE = re.compile(
    r"(?i)([\w-]*(?:password|passwd|passphrase|secret|credential|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|(?<!pad_)(?<!eos_)(?<!bos_)token)\s*[=:]\s*[\"']?)([^\s\"'&,;)]{4,})"
)
_BEARER = re.compile(r"(?i)(bearer\s+)([A-Za-z0-9._~+/-]{8,}=*)")


def mask(command: Sequence[str]) -> list[str]:
    """Replace the values of secrets on a command line.

    >>> mask(["train.py", "--api-key", "k1", "--wandb-token=t2", "s3://u:p@host/x"])
    ['train.py', '--api-key', '****', '--wandb-token=****', 's3://u:****@host/x']
    """
    masked: list[str] = []
    hide_next = False
    for word in command:
        if hide_next:
            masked.append(MASK)
            hide_next = False
            continue
        name, equals, _ = word.partition("=")
        hide_next = not equals and word.startswith("-") and _is_secret_name(word)
        if equals and _is_secret_name(name):
            masked.append(f"{name}={MASK}")
        else:
            masked.append(mask_text(word))
    return masked


def _is_secret_name(option: str) -> bool:
    return _SECRET_NAME.search(option) is not None


def mask_text(text: str) -> str:
    """Replace text that looks like a secret.

    >>> mask_text('headers = {"Authorization": "Bearer abcdefgh12345"}')
    'headers = {"Authorization": "Bearer ****"}'
    """
    text = _BEARER.sub(rf"\1{MASK}", _SECRET_INSIDE.sub(rf"\1{MASK}", text))
    return _SECRET_VALUE.sub(MASK, _URL_PASSWORD.sub(rf"\1:{MASK}@", text))
