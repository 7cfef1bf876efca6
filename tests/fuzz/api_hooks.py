"""Hooks of schemathesis, which loads this file: let most requests name what the runs have, and note
each request and the time of its answer."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import schemathesis

ANSWERS = Path(os.environ["STEPSCOPE_FUZZ_ANSWERS"])
VALUES: dict[str, dict[str, list[Any]]] = json.loads(os.environ["STEPSCOPE_FUZZ_VALUES"])
"""Values of query parameters by run."""
UNCHANGED = {"top", "by", "pixels", "carry_over", "communication"}
"""Parameters of which most generated values are valid."""
ODD_SHARE = 4
"""One request in this many stays as it was generated."""


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """Give the parameters values that exist, and leave out those without any."""
    if not isinstance(query, dict) or "run" not in query:
        return query
    chance = zlib.crc32(repr(sorted(query.items(), key=str)).encode())
    if chance % ODD_SHARE == 0:
        return query
    run = sorted(VALUES)[chance // ODD_SHARE % len(VALUES)]
    valid = VALUES[run] | {"run": [run], "base": sorted(VALUES)}
    return {
        name: valid[name][chance // 100 % len(valid[name])] if name in valid else value
        for name, value in query.items()
        if name in valid or name in UNCHANGED
    }


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Let a body that names a run name one that exists."""
    if isinstance(body, dict) and "run" in body:
        return body | {"run": sorted(VALUES)[len(repr(body)) % len(VALUES)]}
    return body


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
