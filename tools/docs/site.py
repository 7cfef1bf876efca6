"""Hooks of the site's build: documents of the repository's root as pages, sections as pages, and
links between all of them.

A document with `<!-- pages -->` has one page per section after it: the document itself has a table
of them there. MkDocs imports this file alone, in an environment without stepscope.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the site by document of the root."""
PAGES = "<!-- pages -->"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`\n]+`")
_COMMENT = re.compile(r"<!--.*?-->\n*")
_FENCE = re.compile(r"^(```.*?^```$)", re.M | re.S)
_HEADING = re.compile(r"^(#+) (.+)$", re.M)
_SENTENCE = re.compile(r".+?\.(?=\s|$)|.+", re.S)


class Section(NamedTuple):
    """Section of a document that has a page of its own."""

    title: str
    uri: str
    """Page of the site."""
    text: str
    """Markdown, with the title as its first heading."""

    @property
    def summary(self) -> str:
        """First sentence; empty for a section that begins with something else."""
        first = self.text.partition("\n")[2].strip().partition("\n\n")[0]
        return "" if first[:1] in "|-#`" else " ".join(_SENTENCE.match(first)[0].split())


class Target(NamedTuple):
    """Heading of a document on the site."""

    uri: str
    anchor: str


_SECTIONS: dict[str, list[Section]] = {}
"""Sections with pages by page of their document."""
_PARENTS: dict[str, str] = {}
"""Page of the document by page of a section."""
_MOVED: dict[Target, Target] = {}
"""Headings of sections with pages, by where their document has them."""


def on_files(files: Any, config: Any) -> Any:
    """Add the documents of the root and the pages of sections, these to the menu, too."""
    from mkdocs.structure.files import File

    for document, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / document)))
    for group in config.nav:
        for entry in (entry for entries in group.values() for entry in entries):
            ((title, uri),) = entry.items()
            path = ROOT / "docs" / uri
            if path.exists() and PAGES in path.read_text():
                sections = _SECTIONS[uri] = split_document(path.read_text(), uri)
                entry[title] = [{"All": uri}, *({one.title: one.uri} for one in sections)]
                for section in sections:
                    files.append(File.generated(config, section.uri, content=section.text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to pages of the site; files that it lacks are named without a link.

    A pipe in code in a table is escaped on GitHub, and must not be here.
    """
    uri = page.file.src_uri
    document = _PARENTS.get(uri, uri)
    sources = {site: source for source, site in ROOT_PAGES.items()}
    source = sources.get(document, f"docs/{document}")
    if uri in _SECTIONS:
        markdown = markdown.partition(PAGES)[0] + write_table(_SECTIONS[uri])
    markdown = _CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    return LINK.sub(lambda link: rewrite_link(link, source, document, uri), markdown)


def split_document(text: str, uri: str) -> list[Section]:
    """Split what follows the mark of a document into sections; note where their headings are.

    Args:
        text: the document.
        uri: its page.
    """
    head, _, rest = text.partition(PAGES)
    staying = {make_anchor(heading) for _, heading in _HEADING.findall(_FENCE.sub("", head))}
    parts = _FENCE.split(_COMMENT.sub("", rest))
    parts[1::2] = [part.replace("\n#", "\n\0#") for part in parts[1::2]]  # no headings in code
    text = "".join(parts)
    depth = min(len(marks) for marks, _ in _HEADING.findall(text))
    sections = []
    for piece in re.split(rf"^(?={'#' * depth} )", text, flags=re.M)[1:]:
        promoted = _HEADING.sub(lambda match: f"{match[1][depth - 1 :]} {match[2]}", piece)
        headings = [heading for _, heading in _HEADING.findall(promoted)]
        page = f"{uri.removesuffix('.md')}/{make_anchor(headings[0])}.md"
        for heading in headings:
            anchor = make_anchor(heading)
            target = Target(page, "" if heading is headings[0] else f"#{anchor}")
            if anchor not in staying:
                _MOVED.setdefault(Target(uri, f"#{anchor}"), target)
        _PARENTS[page] = uri
        title = headings[0].replace("`", "")
        sections.append(Section(title, page, promoted.replace("\0", "")))
    return sections


def make_anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def write_table(sections: list[Section]) -> str:
    """Write the table of the pages of sections."""
    rows = "".join(
        f"| [{section.title}](#{make_anchor(section.title)}) | {section.summary} |\n"
        for section in sections
    )
    return f"| page | about |\n|---|---|\n{rows}"


def rewrite_link(link: re.Match[str], source: str, document: str, uri: str) -> str:
    """Return a link of a page of the site.

    Args:
        link: the link.
        source: file that has it.
        document: page of that file.
        uri: page of the link, which may be that of a section.

    Raises:
        FileNotFoundError: the link leads nowhere.
    """
    sign, text, target, anchor = link.groups(default="")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if target and not (ROOT / path).exists():
        raise FileNotFoundError(f"{source}: {target}")
    page = ROOT_PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
    page = page if target else document
    if not page:
        return text
    page, anchor = _MOVED.get(Target(page, anchor), (page, anchor))
    relative = "" if page == uri else posixpath.relpath(page, posixpath.dirname(uri) or ".")
    return f"{sign}[{text}]({relative}{anchor})"
