"""Secrets on command lines are masked before anything is stored."""

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


def mask(command: Sequence[str]) -> list[str]:
    """The command line with the values of secrets replaced.

    >>> mask(["train.py", "--api-key", "k1", "--wandb-token=t2", "s3://u:p@host/x"])
    ['train.py', '--api-key', '****', '--wandb-token=****', 's3://u:****@host/x']
    """
    masked: list[str] = []
    hide_next = False
    for word in command:
        if hide_next and not word.startswith("-"):
            masked.append(MASK)
            hide_next = False
            continue
        name, equals, _ = word.partition("=")
        hide_next = not equals and word.startswith("-") and _is_secret_name(word)
        if equals and _is_secret_name(name):
            masked.append(f"{name}={MASK}")
        else:
            masked.append(_mask_inside(word))
    return masked


def _is_secret_name(option: str) -> bool:
    return _SECRET_NAME.search(option) is not None


def _mask_inside(word: str) -> str:
    return _SECRET_VALUE.sub(MASK, _URL_PASSWORD.sub(rf"\1:{MASK}@", word))
