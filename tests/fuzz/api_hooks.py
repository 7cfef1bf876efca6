"""Hooks of schemathesis, which loads this file: note each request and the time of its answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import schemathesis

ANSWERS = Path(os.environ["STEPSCOPE_FUZZ_ANSWERS"])


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Note a request."""
    _note("sent")


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Note its answer: status and seconds."""
    _note(f"{response.status_code} {response.elapsed}")


def _note(line: str) -> None:
    with ANSWERS.open("a") as file:
        file.write(f"{line}\n")
