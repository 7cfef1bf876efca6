"""Hooks of the site's build: documents of the repository's root as pages, and links between both.

MkDocs imports this file alone, in an environment without stepscope.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the site by document of the root."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`\n]+`")


def on_files(files: Any, config: Any) -> Any:
    """Add the documents of the root."""
    from mkdocs.structure.files import File

    for document, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / document)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to pages of the site; files that it lacks are named without a link.

    A pipe in code in a table is escaped on GitHub, and must not be here.
    """
    source = Path(page.file.abs_src_path).relative_to(ROOT).as_posix()
    uri = page.file.src_uri
    markdown = _CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    return _LINK.sub(lambda link: rewrite_link(link, source, uri), markdown)


def rewrite_link(link: re.Match[str], source: str, uri: str) -> str:
    """Return a link of the document `source` as the page `uri` of the site has it.

    Raises:
        FileNotFoundError: the link leads nowhere.
    """
    sign, text, target, anchor = link.groups(default="")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"{source}: {target}")
    page = ROOT_PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
    if not page:
        return text
    return f"{sign}[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor})"
