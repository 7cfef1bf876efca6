"""A verdict as an HTML fragment, for notebooks.

Its colors are those of the text around it, so it is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stepscope.diagnosis.verdict import Verdict
from stepscope.quantities import percent

BOX_STYLE = "border-left:3px solid currentColor;padding:.2em 1em;max-width:60em"
DIM_STYLE = "opacity:.7"


def render_verdict(verdict: Verdict) -> str:
    """Render the suspect, its share, the cause, the evidence and the fixes of a verdict."""
    parts = [f"<strong>{escape(verdict.headline)}</strong>"]
    if verdict.has_bottleneck:
        parts.append(
            f'<div style="{DIM_STYLE}">{percent(verdict.share_ratio)} of '
            f"{escape(verdict.share_of)}. Confidence {percent(verdict.confidence_ratio)}. "
            f"{escape(verdict.confidence_basis)}</div>"
        )
    parts += _render_list("Evidence", [escape(evidence.text) for evidence in verdict.evidence])
    fixes = []
    for fix in verdict.fixes:
        prediction = f" Predicted {escape(fix.prediction.text)}." if fix.prediction else ""
        fixes.append(f"<b>{escape(fix.title)}</b>: {escape(fix.instructions)}{prediction}")
    parts += _render_list("What to do", fixes, tag="ol")
    parts += _render_list("Notes", map(escape, verdict.notes))
    return f'<div style="{BOX_STYLE}">{"".join(parts)}</div>'


def _render_list(title: str, items: Iterable[str], *, tag: str = "ul") -> list[str]:
    """Render a titled list of HTML items; nothing without items."""
    entries = "".join(f"<li>{item}</li>" for item in items)
    return [f"<div>{title}</div><{tag}>{entries}</{tag}>"] if entries else []
