"""The documents agree with the code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from stepscope.analysis import PHASES
from stepscope.cli import COMMANDS
from stepscope.diagnosis.verdict import SUSPECTS
from stepscope.views import VIEWS
from tests.support.command import run_command
from tools.docs.blocks import find_documents, update_blocks
from tools.docs.site import ROOT_PAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("document", find_documents(), ids=lambda path: path.name)
def test_generated_parts_are_up_to_date(document: Path) -> None:
    text = document.read_text()
    if update_blocks(text) != text:  # pytest would compare the texts line by line for minutes
        pytest.fail(f"{document.relative_to(ROOT)} is out of date: run `make generate`")


def test_the_pages_name_every_command_and_view() -> None:
    commands, views = (DOCS / "commands.md").read_text(), (DOCS / "views.md").read_text()
    for command in COMMANDS:
        is_described = f"`stepscope {command}`" in commands or f"`stepscope {command} " in commands
        assert is_described, f"describe `stepscope {command}` in docs/commands.md"
    for view in VIEWS:
        assert f"`{view}`" in views, f"describe `{view}` in docs/views.md"


def test_links_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in read_anchors(path), f"{page.name}: {target}#{anchor}"


def test_the_site_has_every_page_once() -> None:
    menu = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(menu) == sorted([*pages, *ROOT_PAGES.values()])


@cache
def read_anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_verdicts_page_names_every_suspect_and_phase() -> None:
    page = (ROOT / "docs" / "verdict.md").read_text()
    for name in (*SUSPECTS, "healthy", "insufficient_evidence", *PHASES):
        assert name in page


def test_the_capture_page_has_the_options_defaults() -> None:
    page = (ROOT / "docs" / "capture.md").read_text()
    answer = run_command(ROOT, "run", "--help")
    limit = re.search(r"\[default: +(\d+MiB)\]", " ".join(answer.stdout.split()))
    assert limit is not None
    number = limit.group(1).removesuffix("MiB")
    assert f"{number} MiB" in page


@pytest.mark.parametrize("file", ["README.md", "docs/verdict.md", "docs/capture.md"])
def test_no_placeholder_is_left(file: str) -> None:
    text = re.sub(r"<!-- (generated: .+?|end) -->", "", (ROOT / file).read_text())
    assert "<!--" not in text
