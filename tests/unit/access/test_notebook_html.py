"""Display of a run and of a verdict in a notebook."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from IPython.core.formatters import HTMLFormatter

import stepscope
from stepscope.access import OpenRun
from stepscope.diagnosis import Evidence, Fix, Verdict
from stepscope.testing import RunBuilder

HOSTILE = "<script>alert(1)</script>&\"'"


class Parsed(HTMLParser):
    """Tags, attributes and text of a fragment; fails where tags do not match."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: set[str] = set()
        self.styles: list[str] = []
        self.text = ""
        self.feed(fragment)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, and its style, the only attribute that is allowed."""
        self.opened.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        self.styles += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Check that the tag closes the last one."""
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text."""
        self.text += data


def show(value: object) -> Parsed:
    """Return what IPython displays for a value."""
    html = HTMLFormatter()(value)
    assert html is not None
    assert len(html) < 20_000
    return Parsed(html)


def test_a_verdict_shows_suspect_share_cause_and_fixes(run: OpenRun) -> None:
    verdict = run.verdict()
    shown = show(verdict)
    assert "Bottleneck: data pipeline" in shown.text
    assert f"{100 * verdict.share_ratio:.0f}% of {verdict.share_of}" in shown.text
    for part in (verdict.headline, *(fix.title for fix in verdict.fixes)):
        assert part in shown.text
    assert verdict.fixes
    assert "Predicted" in shown.text


def test_a_run_shows_its_overview_and_verdict(run: OpenRun) -> None:
    shown = show(run)
    for part in ("CPU python", "Completed", "2 ranks", "steps of", "GPU busy"):
        assert part in shown.text
    assert run.verdict().headline in shown.text


def test_colors_are_those_of_the_page(run: OpenRun) -> None:
    """A color of its own would be unreadable in one of the two themes."""
    for style in show(run).styles:
        assert not re.search(r"(^|;)\s*(color|background)|#[0-9a-f]{3}|rgb", style)


def test_text_of_a_run_is_no_markup() -> None:
    verdict = Verdict(
        suspect="model",
        cause="compute",
        share_ratio=0.5,
        confidence_ratio=0.5,
        headline=HOSTILE,
        stages=[],
        evidence=[Evidence(text=HOSTILE)],
        ruled_out=[],
        fixes=[Fix(title=HOSTILE, instructions=HOSTILE, why="")],
        notes=[HOSTILE],
    )
    shown = show(verdict)
    assert shown.text.count(unescape(HOSTILE)) == 5
    assert "script" not in shown.tags


def test_a_run_without_a_verdict_says_why(tmp_path: Path) -> None:
    run = stepscope.open(RunBuilder(tmp_path / "empty").write())
    assert "No verdict: " in show(run).text
