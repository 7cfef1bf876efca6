"""Blocks of the documents that a shell or Python runs: what is typed, and what it prints.

A block of console has commands after `$ `, each with its output below; `…` stands for any
output. A block with a title is a file. One of Python is a session if it has prompts (`>>> `), else
a script. A block that cannot run in a test begins with a line `# needs …`, which readers see, too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDS = "# needs "
"""Start of the first line of a block that a test cannot run."""
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
_PROMPT = "$ "
_FIGURE = re.compile(
    r"<?-?\d[\d,]*(?:\.\d+)?(?: ?(?:%|[nµm]?s|min|h|[KMG]iB|[KMG]B|bytes|x))?(?!\w)"
)
_FOLDER = re.compile(r"(?<![\w.])/\S*/")
_BAR = re.compile(r"[█▓▒░▚▖·]+")


@dataclass(frozen=True)
class Block:
    """A block of a document."""

    page: Path
    line: int
    """Line of its fence."""
    language: str
    title: str
    text: str

    @property
    def address(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def needs(self) -> str:
        """Things that a test lacks to run the block; empty if it can."""
        first, _, _ = self.text.partition("\n")
        return first.removeprefix(NEEDS) if first.startswith(NEEDS) else ""

    @property
    def is_session(self) -> bool:
        return self.text.startswith(">>> ")


@dataclass(frozen=True)
class Typed:
    """A command of a block, with the output that the document shows of it."""

    command: str
    output: list[str]


def find_pages() -> list[Path]:
    """Find the documents of the site that are written by hand."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_blocks(page: Path) -> list[Block]:
    """Read the blocks of a document, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2] or "", match[3])
        for match in _BLOCK.finditer(text)
    ]


def read_commands(block: Block) -> Iterator[Typed]:
    """Split a block of console into its commands.

    A command ends with the first line after which Bash accepts it, so loops have several lines.
    """
    command, output = "", list[str]()
    is_open = False
    for line in block.text.splitlines():
        if is_open:
            command += f"\n{line}"
        elif line.startswith(_PROMPT):
            if command:
                yield Typed(command, output)
            command, output = line.removeprefix(_PROMPT), []
        elif not line.lstrip().startswith("#"):  # a comment that goes on
            output.append(line)
            continue
        is_open = bool(command) and not is_complete(command)
    if command:
        yield Typed(command, output)


def is_complete(command: str) -> bool:
    """Return True if Bash would run a command as typed so far."""
    if command.rstrip().endswith("\\"):
        return False
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0


def mask(text: str) -> str:
    """Replace figures, with their units, bars and folders; make all white space one space, and none
    after a path too long for a line."""
    figures = _FIGURE.sub("#", _BAR.sub("=", _FOLDER.sub("/", text)))
    return re.sub(r"#( #)+", "#", " ".join(figures.split())).replace(") :", "):")


def find_missing_line(expected: list[str], printed: str) -> str | None:
    """Return the first line of the document that is not in the output, in its order, or None.

    Lines may be broken elsewhere, as the terminal of a reader breaks them.
    """
    text = mask(printed)
    for line in expected:
        phrase = mask(line.strip().removesuffix("…"))
        if not phrase:
            continue
        position = text.find(phrase)
        if position < 0:
            return line
        text = text[position + len(phrase) :]
    return None
