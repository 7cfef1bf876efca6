"""The verdict in prose says what it is given, brackets and all."""

from __future__ import annotations

import io

from rich.console import Console

from stepscope.cli.verdict_text import write_verdict
from stepscope.diagnosis import Evidence, Fix, Stage, Verdict

LINE = 'train.py:7 takes 90% of the time between phases: t = re.split("[/ ]", batch[idx])'


def test_source_lines_are_not_markup() -> None:
    verdict = Verdict(
        suspect="framework_overhead",
        cause="python_overhead",
        share_ratio=0.5,
        confidence_ratio=0.9,
        headline="Overhead owns 50% of the step.",
        stages=[Stage(name="between", detail="a[0] [bold]", share_ratio=0.5)],
        evidence=[Evidence(text="a step is"), Evidence(text=LINE)],
        ruled_out=[],
        fixes=[Fix(title="move [it]", how="use [/x]", why=LINE)],
        notes=["note [1]"],
    )
    out = io.StringIO()
    write_verdict(Console(file=out, width=200), verdict)
    text = out.getvalue()
    assert text.count(LINE) == 2
    for part in ("a[0] [bold]", "move [it]: use [/x]", "note [1]"):
        assert part in text
