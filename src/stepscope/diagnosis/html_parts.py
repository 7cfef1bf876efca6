"""Parts of an HTML fragment for notebooks.

Its colors are those of the text around it, so it is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable

_DIM_STYLE = "opacity:.7"
_BOX_STYLE = "border-left:3px solid currentColor;padding:.2em 1em;max-width:60em"


def render_box(parts: Iterable[str]) -> str:
    """Render a box around HTML parts."""
    return f'<div style="{_BOX_STYLE}">{"".join(parts)}</div>'


def render_dim(text: str) -> str:
    """Render a line of HTML of less weight."""
    return f'<div style="{_DIM_STYLE}">{text}</div>'


def render_list(title: str, items: Iterable[str], *, tag: str = "ul") -> str:
    """Render a titled list of HTML items; empty without items."""
    entries = "".join(f"<li>{item}</li>" for item in items)
    return f"<div>{title}</div><{tag}>{entries}</{tag}>" if entries else ""
