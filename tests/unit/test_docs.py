"""The documents agree with the code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import stepscope
from stepscope import access, schema
from stepscope.analysis import PHASES
from stepscope.cli import COMMANDS, root
from stepscope.diagnosis.verdict import SUSPECTS
from stepscope.errors import StepscopeError
from stepscope.rules import installed_rules
from stepscope.rules.registry import BUILT_IN_RULES
from stepscope.views import VIEWS
from tests.support.command import run_command
from tests.support.document_blocks import find_pages, read_blocks
from tools.docs.blocks import find_documents, update_blocks
from tools.docs.site import LINK, PAGES, ROOT_PAGES, Section, rewrite_link, split_document

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NEEDS = {
    "DeepSpeed": 1,
    "GPUs": 1,
    "Go": 1,
    "HolisticTraceAnalysis": 1,
    "Polars": 1,
    "TensorBoard": 1,
    "a GPU": 2,
    "Ray": 1,
    "a bucket": 5,
    "a clone": 2,
    "a cluster": 8,
    "a collector, and an account": 1,
    "a receiver of alerts": 1,
    "a server, and a bucket": 1,
    "an earlier build, and the peers": 1,
    "podman": 1,
    "half an hour of two idle cores": 1,
    "hours, and HolisticTraceAnalysis": 1,
    "the package index": 1,
}
"""Blocks that a test cannot run, by what they need."""


@pytest.mark.parametrize("document", find_documents(), ids=lambda path: path.name)
def test_generated_parts_are_up_to_date(document: Path) -> None:
    text = document.read_text()
    if update_blocks(text) != text:  # pytest would compare the texts line by line for minutes
        pytest.fail(f"{document.relative_to(ROOT)} is out of date: run `make generate`")


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "commands.md": lambda: (f"stepscope {name}" for name in COMMANDS),
    "reference/commands.md": lambda: list_options(root, "stepscope"),
    "rules.md": lambda: installed_rules().names,
    "views.md": lambda: VIEWS,
    "reference/views.md": lambda: (
        field for view in VIEWS.values() for field in view.payload.__struct_fields__
    ),
    "run-directory.md": lambda: (*schema.TABLES, *schema.METRIC_TYPES),
    "reference/python.md": lambda: (
        *(name for name in (*stepscope.__all__, *access.__all__) if name[0] != "_"),
        *(f"OpenRun.{name}" for name in dir(access.OpenRun) if name[0] != "_"),
    ),
    "errors.md": lambda: subclasses_of(StepscopeError),
}
"""Names that a page has to explain, by page."""


def list_options(command: click.Command, path: str) -> Iterator[str]:
    """List the options of a command and of those below it, each with a text in `--help`."""
    context = click.Context(command)
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{path} {option.opts[0]} has no text in --help"
            yield from option.opts
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        inner = command.get_command(context, name)
        assert inner is not None
        yield f"{path} {name}"
        yield from list_options(inner, f"{path} {name}")


def subclasses_of(error: type[Exception]) -> Iterator[str]:
    yield error.__name__
    for subclass in error.__subclasses__():
        yield from subclasses_of(subclass)


@pytest.mark.parametrize("page", NAMES)
def test_a_page_explains_every_name(page: str) -> None:
    text = (DOCS / page).read_text()
    code = " | ".join(re.findall(r"`[^`\n]+`|^#+ .+$", text, flags=re.MULTILINE))
    missing = [name for name in NAMES[page]() if not re.search(rf"(?<![\w-]){name}(?![\w-])", code)]
    assert not missing, f"describe in docs/{page}, between backticks: {missing}"


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


def test_sections_are_pages_of_the_site() -> None:
    pages: dict[str, list[Section]] = {}
    for path in DOCS.rglob("*.md"):
        if PAGES in path.read_text():
            uri = path.relative_to(DOCS).as_posix()
            pages[uri] = split_document(path.read_text(), uri)
            fences = sum(section.text.count("```") for section in pages[uri])
            assert fences == path.read_text().partition(PAGES)[2].count("```")
    titles = {uri: [section.title for section in sections] for uri, sections in pages.items()}
    assert titles["rules.md"] == [rule.__name__ for rule in BUILT_IN_RULES]
    assert {f"stepscope {name}" for name in COMMANDS} == set(titles["reference/commands.md"])
    assert {*VIEWS} < set(titles["reference/views.md"])
    assert {*schema.TABLES} <= set(titles["run-directory.md"])
    uris = [section.uri for sections in pages.values() for section in sections]
    assert len(set(uris)) == len(uris)

    def follow(link: str, source: str) -> str:
        (match,) = re.finditer(LINK, link)
        return rewrite_link(match, f"docs/{source}", source, source)

    assert follow("[x](rules.md#cpubottleneck)", "start.md") == "[x](rules/cpubottleneck.md)"
    assert follow("[x](#grain)", "frameworks.md") == "[x](frameworks/jax.md#grain)"
    assert follow("[x](rules.md#parameters)", "start.md") == "[x](rules.md#parameters)"


@cache
def read_anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_symptom_ends_in_one_command() -> None:
    _, *sections = re.split(r"^## ", (DOCS / "symptoms.md").read_text(), flags=re.MULTILINE)
    assert len(sections) >= 10
    for section in sections:
        assert re.search(r"```console\n\$ [^\n]+\n```\s*$", section), section
        assert section.count("```console") == 1


def test_the_verdicts_page_names_every_suspect_and_phase() -> None:
    page = (ROOT / "docs" / "verdict.md").read_text()
    for name in (*SUSPECTS, "healthy", "insufficient_evidence", *PHASES):
        assert name in page


def test_the_capture_page_has_the_options_defaults() -> None:
    page = (ROOT / "docs" / "capture.md").read_text()
    answer = run_command(ROOT, "run", "--help-all")
    limit = re.search(r"\bdefault: +(\d+MiB)\b", " ".join(answer.stdout.split()))
    assert limit is not None
    number = limit.group(1).removesuffix("MiB")
    assert f"{number} MiB" in page


@pytest.mark.parametrize("file", ["README.md", "docs/verdict.md", "docs/capture.md"])
def test_no_placeholder_is_left(file: str) -> None:
    text = re.sub(r"<!-- (generated: .+?|end) -->", "", (ROOT / file).read_text())
    assert "<!--" not in text


def test_blocks_that_do_not_run_are_counted() -> None:
    """tests/e2e/test_documents.py runs the others."""
    blocks = [block for page in find_pages() for block in read_blocks(page)]
    assert Counter(block.needs for block in blocks if block.needs) == NEEDS
