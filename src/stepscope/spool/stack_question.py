"""Question of the monitor for the stacks of all threads of a process, and the answer.

    <process>/question       number of the question; the process removes it with its answer
    <process>/answer.json    number of the question, and the stacks; replaced as a whole

A sampler of the process looks for a question once a second, so that no thread of the job has to.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_QUESTION, _ANSWER = "question", "answer.json"
MAX_ANSWER_BYTES = 1 << 22


def ask_for_stacks(directory: str, number: int) -> None:
    """Ask the process of a directory.

    Raises:
        OSError: the spool cannot be written.
    """
    _replace(f"{directory}/{_QUESTION}", str(number).encode())


def read_question(directory: str) -> int | None:
    """Return the number of the question that is not answered; None without one."""
    try:
        with open(f"{directory}/{_QUESTION}", "rb") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return None


def write_answer(directory: str, number: int, stacks: list[dict[str, Any]]) -> None:
    """Answer a question.

    Raises:
        OSError: the spool cannot be written.
    """
    import json

    _replace(f"{directory}/{_ANSWER}", json.dumps({"question": number, "stacks": stacks}).encode())
    os.unlink(f"{directory}/{_QUESTION}")


def read_answer(directory: str) -> bytes:
    """Read the last answer, a JSON object; empty without one."""
    try:
        with open(f"{directory}/{_ANSWER}", "rb") as file:
            return file.read(MAX_ANSWER_BYTES)
    except OSError:
        return b""


def _replace(path: str, content: bytes) -> None:
    staged = f"{path}.new"
    with open(staged, "wb") as file:
        file.write(content)
    os.rename(staged, path)
