"""docs/errors.md lists the errors of users, each of which a test provokes and quotes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.command import run_command
from tools.docs.errors import Message, read_catalogue

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "errors.md"
MIN_QUOTATION = 16
"""Characters of a message that a test has to quote, if there are as many between two names."""

NOT_PROVOKED = {
    # A monitor that is slow, or dies, at a certain moment.
    "No census of memory was taken: no process has answered in time.",
    "No window was recorded: {failures}",
    "The job ended before the change was applied.",
    "The monitor did not respond within {waited}.",
    "The monitor did not respond within {waited}; it applies the change when it does.",
    "The window was not stored within {waited} ({answers}); recording continues.",
    # A process that ends, or a thread of the kernel, between two looks at it.
    "Process {pid} has just ended.",
    "Process {pid} has no command line: it is a thread of the kernel, or is just starting.",
    # Clients and servers that end in the middle of a request, or twenty imports at once.
    "20 imports are waiting. Try again later.",
    "Cannot read {url}: the process that contacted the object store was killed.",
    "The client has disconnected.",
    "The server is shutting down.",
    "The trace did not arrive completely.",
    # Machines without any writable directory, without namespaces, or with reserved ports.
    "Cannot listen on {host} port {candidate}: {reason}.",
    "Nothing can be recorded: {problems}.",
    "This machine cannot discard the files that a trial writes (no user namespaces or overlays). "
    "The job's first steps would write for real: pass --in-place to accept that.",
}
"""Messages that no test provokes so far, because they take a race or another machine."""


def test_messages_are_in_the_document(tmp_path: Path) -> None:
    """Errors as users meet them, with a message in the source, in a constant and of a function."""
    for arguments, message in (
        (["show", ".", "overview"], "| {path} is not a run: it has no {run key}. | Pass the"),
        (["diagnose", "nowhere"], "| {path} does not exist. | Pass the directory of a run. |"),
        (["run", "--spool-limit", "many", "--", "true"], "| {text} is not a size, e.g. 256MB"),
        (["run", "--", "no-such"], "| Command {program} not found; check its spelling"),
    ):
        error = run_command(tmp_path, *arguments).stderr
        assert message in DOC.read_text()
        parts = [part for part in re.split(r"\{.*?\}|\|", message) if part.strip()]
        assert all(part.strip() in error for part in parts), error


@pytest.mark.slow("provokes every message")
def test_every_message_is_provoked() -> None:
    """A test that provokes an error quotes a part of its message."""
    catalogue = read_catalogue()
    findings = [message for fault in catalogue.faults for message in fault.texts[0]]
    quotations = read_quotations()
    missing = {
        message.text: message.location
        for message in (*catalogue.messages, *findings)
        if not is_quoted(message, quotations)
    }
    new = [f"{missing[text]}: {text}" for text in sorted(missing.keys() - NOT_PROVOKED)]
    assert not new, "\n".join(["no test quotes:", *new])
    assert not NOT_PROVOKED - missing.keys(), "quoted by a test now"


def read_quotations() -> list[str]:
    """Return the texts of all tests but this one, without the backslashes of patterns."""
    texts: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            texts |= {
                re.sub(r"\\(.)", r"\1", node.value).strip()
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    return sorted(texts)


def is_quoted(message: Message, quotations: list[str]) -> bool:
    """Return True if a text of a test holds a piece of a message, or enough of it."""
    pieces = [piece.strip(" .;:") for piece in message.template[::2]]
    longest = max(map(len, pieces))
    long_pieces = [piece for piece in pieces if len(piece) >= min(MIN_QUOTATION, longest)]
    return any(
        piece in text or (len(text) >= MIN_QUOTATION and text.strip(" .;:") in piece)
        for piece in long_pieces
        for text in quotations
    )
