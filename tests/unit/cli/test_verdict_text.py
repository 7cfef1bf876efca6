"""Terminal text of a verdict."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from stepscope.cli.conclusion import conclude
from stepscope.cli.verdict_text import write_verdict
from stepscope.diagnosis import (
    ContributingCause,
    Evidence,
    Fix,
    Prediction,
    RuledOut,
    Stage,
    Verdict,
    diagnose,
)
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder


class FullStream(io.StringIO):
    """Stream on a device without space."""

    def write(self, _text: str) -> int:
        """Fail as a full device does."""
        raise OSError(errno.ENOSPC, "No space left on device")


LINE = 'train.py:7 takes 90% of the time between phases: t = re.split("[/ ]", batch[idx])'


def test_source_lines_are_not_markup() -> None:
    verdict = Verdict(
        suspect="framework_overhead",
        cause="python_overhead",
        share_ratio=0.5,
        confidence_ratio=0.9,
        confidence_basis="On public programs, “slow augmentation” was right for 5 of 6.",
        headline="Bottleneck: overhead, 50% of step time.",
        share_basis="The 50% are Python between the phases 30%, checkpoint 20%.",
        stages=[Stage(name="between", detail="a[0] [bold]", share_ratio=0.5)],
        evidence=[Evidence(text="Step time by phase: other 50%."), Evidence(text=LINE)],
        ruled_out=[],
        fixes=[Fix(title="move [it]", instructions="use [/x]", why=LINE)],
        notes=["note [1]"],
    )
    out = io.StringIO()
    write_verdict(Console(file=out, width=200), verdict)
    text = out.getvalue()
    assert text.count(LINE) == 2
    for part in (verdict.share_basis, "a[0] [bold]", "move [it]: use [/x]", "note [1]"):
        assert part in text


def test_sentences_of_a_verdict() -> None:
    prediction = Prediction.from_step(51.8e6, 126e6, "augmentation took no time")
    verdict = Verdict(
        suspect="data_pipeline",
        cause="slow_augmentation",
        share_ratio=0.64,
        confidence_ratio=0.914,
        confidence_basis="On public programs, “slow augmentation” was right for 5 of 6.",
        headline="Bottleneck: data pipeline, 64% of step time. Cause: slow augmentation.",
        stages=[Stage(name="augmentation", detail="", share_ratio=0.64)],
        evidence=[Evidence(text="Step time by phase: data wait 64%.")],
        ruled_out=[RuledOut(suspect="communication", share_ratio=0, why="not applicable.")],
        fixes=[Fix(title="Move it", instructions="do", why="It is slow.", prediction=prediction)],
        also=[
            ContributingCause(
                suspect="framework_overhead", cause="cpu_limit", share_ratio=0.1, text="It is low."
            )
        ],
        step_count=230,
        mean_step_ns=126e6,
        phases={"data_wait": 0.64, "forward": 0.004},
    )
    out = io.StringIO()
    write_verdict(Console(file=out, width=200), verdict)
    text = out.getvalue()
    for part in (
        "230 steps measured, mean 126 ms. Confidence 91%. Shares are of step wall time.",
        "On public programs, “slow augmentation” was right for 5 of 6.",
        "Breakdown (shares of step time)",
        "Communication: not applicable.",
        "Contributing causes\n  - CPU limit: It is low.",
        "Predicted step time 51.8 ms (-59%) if augmentation took no time.",
        "Reason: It is slow.",
    ):
        assert part in text
    assert "forward" not in text


def test_items_of_lists_have_a_hanging_indent() -> None:
    verdict = Verdict(
        suspect="data_pipeline",
        cause="slow_augmentation",
        share_ratio=0.64,
        confidence_ratio=0.914,
        confidence_basis="On public programs, “slow augmentation” was right for 5 of 6.",
        headline="Bottleneck: data pipeline.",
        stages=[],
        evidence=[Evidence(text=""), Evidence(text="word " * 30)],
        ruled_out=[],
        fixes=[Fix(title="Move it", instructions="do " * 30, why="slow " * 30)],
        step_count=230,
        mean_step_ns=126e6,
    )
    out = io.StringIO()
    write_verdict(Console(file=out, width=50), verdict)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    for first, indent in (("  - word", 4), ("  1. Move it: do", 5), ("     Reason: slow", 5)):
        (position,) = [n for n, line in enumerate(lines) if line.startswith(first)]
        wrapped = lines[position + 1]
        assert len(wrapped) - len(wrapped.lstrip()) == indent


@pytest.mark.parametrize("as_json", [True, False])
def test_a_full_terminal_does_not_lose_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 10 | backward 20 | optimizer 5", 20)
    location = run.write()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, FullStream())
    conclude(location, as_json=as_json)
    stored = open_run(location).document("verdict", as_type=Verdict)
    assert stored == diagnose(Run(open_run(location)))
