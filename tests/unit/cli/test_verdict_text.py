"""Terminal text of verdicts, trials and tables."""

from __future__ import annotations

import errno
import io
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stepscope.capture.trial import CHANGES
from stepscope.cli.commands.try_changes import describe_losses
from stepscope.cli.job.job_run import conclude
from stepscope.cli.text import MIN_NAME_CELLS, console, table
from stepscope.cli.writers.verdict import write_verdict
from stepscope.cli.writers.verdict_screen import write_screen
from stepscope.diagnosis import (
    ContributingCause,
    Death,
    Evidence,
    Fix,
    JobAccount,
    JobFix,
    Prediction,
    RuledOut,
    Stage,
    Verdict,
    diagnose,
)
from stepscope.diagnosis.sentences import explain_hatching, list_bars
from stepscope.diagnosis.verdict import CORE_SHARE
from stepscope.run import Run
from stepscope.schema import Change, LossComparison
from stepscope.store import open_run
from stepscope.testing import RunBuilder


class FullStream(io.StringIO):
    """Stream on a device without space."""

    def write(self, _text: str) -> int:
        """Fail as a full device does."""
        raise OSError(errno.ENOSPC, "No space left on device")


LINE = 'train.py:7 takes 90% of the time between phases: t = re.split("[/ ]", batch[idx])'


VERDICT = Verdict(
    suspect="data_pipeline",
    cause="slow_augmentation",
    share_ratio=0.64,
    confidence_ratio=0.914,
    headline="Bottleneck: data pipeline, 64% of step time. Cause: slow augmentation.",
    stages=[Stage(name="augmentation", detail="", share_ratio=0.64)],
    evidence=[Evidence(text="Step time by phase: data wait 64%.")],
    ruled_out=[RuledOut(suspect="communication", share_ratio=0, why="not applicable.")],
    fixes=[],
    step_count=230,
    mean_step_ns=126e6,
    phases={"data_wait": 0.64, "forward": 0.004},
    bars=list_bars({"data_wait": 0.64, "forward": 0.004}),
)


def write(width: int, **fields: object) -> str:
    """Write the verdict with other fields."""
    out = io.StringIO()
    write_verdict(Console(file=out, width=width), msgspec.structs.replace(VERDICT, **fields))
    return out.getvalue()


def test_the_bars_show_the_denominator_with_the_time_without_a_core_hatched() -> None:
    """Of a step of 100 ms, 40 are without a core: of the other 60, 45 are the forward pass."""
    bars = list_bars({"forward": 0.75, "other": 0.25}, {"forward": 0.3, "other": 0.1}, CORE_SHARE)
    text = write(
        200,
        mean_step_ns=100e6,
        share_of=CORE_SHARE,
        bases_ns={CORE_SHARE: 60e6},
        bars=bars,
        bars_basis=explain_hatching(bars, CORE_SHARE),
    )
    assert "mean 100 ms, 60 ms without waiting for cores." in text
    forward, between = (line for line in text.splitlines() if "▒" in line)
    assert (forward.count("█"), forward.count("▒")) == (round(0.45 * 24), 7)
    assert (between.count("█"), between.count("▒")) == (round(0.15 * 24), 2)
    assert forward.endswith(" 75%")
    assert between.endswith(" 25%")
    assert "Hatched: waiting for a core, 40% of step wall time, part of no share." in text


LONG = "a sentence about the job that is so long that it takes a second line of a terminal, no more"


def write_short(width: int = 80, **fields: object) -> list[str]:
    """Write the verdict on one screen; returns its lines."""
    out = io.StringIO()
    verdict = msgspec.structs.replace(VERDICT, **fields)
    write_screen(Console(file=out, width=width), verdict, "/runs/a")
    return out.getvalue().splitlines()


def test_a_verdict_with_everything_fits_one_screen() -> None:
    prediction = Prediction.from_step(51.8e6, 126e6, "augmentation took no time")
    changes = [Change(name=next(iter(CHANGES)), value="2")]
    fixes = [
        Fix(title=f"Do {n}", instructions=LONG, why=LONG, prediction=prediction, changes=changes)
        for n in range(5)
    ]
    also = ContributingCause(suspect="model", cause="x", share_ratio=0.1, text=LONG)
    evidence = [Evidence(text=f"{n} is {LONG}.") for n in range(6)]
    limited = {"notes": ["note", LONG], "limitations": [LONG]}
    lines = write_short(fixes=fixes, also=[also, also], evidence=evidence, **limited)
    assert " ".join(" ".join(lines[:2]).split()) == f"! {LONG}"
    assert len(lines) <= 26
    text = "\n".join(lines)
    for part in (
        "Bottleneck: data pipeline, 64% of step time. Cause: slow augmentation.",
        "230 steps, mean 126 ms. Confidence 91%. Shares are of step wall time.",
        "1. Do 0: saves at most 59% of the step" if prediction.is_bound else "1. Do 0: saves 59%",
        "3. Do 2: ",
        "try /runs/a --fix 1",
        "diagnose /runs/a --all  (2 more fixes, 2 contributing causes, 1 note)",
    ):
        assert part in text
    assert "Do 3" not in text
    assert [f"{n} is" in text for n in range(6)] == [False, True, True, True, False, False]
    output = [f"line {n}" for n in range(20)]
    death = Death(cause="exception", headline="It died.", exit_code=1, signal=None, output=output)
    lines = write_short(fixes=fixes, evidence=evidence, death=death)
    assert len(lines) <= 30
    title = "Last lines of the error output:"
    shown = [line.strip() for line in lines[1:6]]
    assert shown == ["It died.", title, "line 17", "line 18", "line 19"]


def test_fixes_of_a_job_are_among_those_of_its_steps() -> None:
    """By what they save of the job, and the small ones only where the job comes first; the numbers
    stay those of `--fix`."""
    fixes = [
        Fix(title=f"Do {share}", instructions="", why="", job_saving_ratio=share)
        for share in (0.3, 0.1)
    ]
    job_fix = JobFix(
        title="", instructions="", why="", saving_ns=1e9, saving_ratio=0.0, is_bound=True
    )
    job_fixes = [
        msgspec.structs.replace(job_fix, title=f"Shorten {share}", saving_ratio=share)
        for share in (0.4, 0.05)
    ]
    job = JobAccount(
        headline="", is_first=True, duration_ns=10, planned_ns=None, planned_step_count=None,
        step_count=1, goodput_ratio=None, device_goodput_ratio=None, first_step_ns=None,
        is_final=True, parts=[], fixes=job_fixes, notes=[],
    )  # fmt: skip
    lines = write_short(fixes=fixes, job=job)
    start = lines.index("What to do") + 1
    assert [line.strip() for line in lines[start : start + 4]] == [
        "-  Shorten 0.4: saves at most 40% of the job",
        "1. Do 0.3",
        "2. Do 0.1",
        "",
    ]
    assert "(1 more fix" in lines[-1]
    later = "\n".join(write_short(fixes=fixes, job=msgspec.structs.replace(job, is_first=False)))
    assert "Shorten 0.4" in later
    assert "Shorten 0.05" not in later


def test_the_bar_is_in_the_base_of_the_headline() -> None:
    """Of a step of 100 ms, 40 are without a core: of the other 60, 45 are the forward pass."""
    bars = list_bars({"forward": 0.75, "other": 0.25}, {"forward": 0.3, "other": 0.1}, CORE_SHARE)
    lines = write_short(104, share_of=CORE_SHARE, bases_ns={CORE_SHARE: 60e6}, bars=bars)
    start = next(number for number, line in enumerate(lines) if "█" in line)
    bar, legend, waiting = lines[start : start + 3]
    assert [bar.count(cell) for cell in "█▓·"] == [45, 15, 40]
    assert legend == "  █ forward 75%   ▓ other 25%"
    of_wall = "waiting for a core: 40% of step wall time"
    assert waiting == f"  · {of_wall}, which the shares leave out"
    wall = list_bars({"forward": 0.75, "other": 0.25}, {"forward": 0.3, "other": 0.1})
    lines = write_short(104, bars=wall)
    start = next(number for number, line in enumerate(lines) if "█" in line)
    bar, _, waiting = lines[start : start + 3]
    assert [bar.count(cell) for cell in "█▓·"] == [75, 25, 0]
    assert waiting == f"  {of_wall}, part of these phases"


def test_source_lines_are_not_markup() -> None:
    fields = {
        "share_basis": "The 50% are Python between the phases 30%, checkpoint 20%.",
        "stages": [Stage(name="between", detail="a[0] [bold]", share_ratio=0.5)],
        "evidence": [Evidence(text="Step time by phase: other 50%."), Evidence(text=LINE)],
        "fixes": [Fix(title="move [it]", instructions="use [/x]", why=LINE)],
        "notes": ["note [1]"],
    }
    text = write(200, **fields)
    assert text.count(LINE) == 2
    for part in (fields["share_basis"], "a[0] [bold]", "move [it]: use [/x]", "note [1]"):
        assert part in text


def test_sentences_of_a_verdict() -> None:
    prediction = Prediction.from_step(51.8e6, 126e6, "augmentation took no time")
    fix = Fix(title="Move it", instructions="do", why="It is slow.", prediction=prediction)
    also = ContributingCause(
        suspect="framework_overhead", cause="cpu_limit", share_ratio=0.1, text="It is low."
    )
    text = write(200, fixes=[fix], also=[also])
    for part in (
        "230 steps measured, mean 126 ms. Confidence 91%. Shares are of step wall time.",
        "Breakdown (shares of step time)",
        "Communication: not applicable.",
        "Contributing causes\n  - CPU limit (framework and host overhead, 10% of step wall time): "
        "It is low.",
        "Predicted step time 51.8 ms (-59%) if augmentation took no time.",
        "Reason: It is slow.",
    ):
        assert part in text
    assert "forward" not in text


def test_items_of_lists_have_a_hanging_indent() -> None:
    evidence = [Evidence(text=""), Evidence(text="word " * 30)]
    fix = Fix(title="Move it", instructions="do " * 30, why="slow " * 30)
    text = write(50, stages=[], evidence=evidence, ruled_out=[], fixes=[fix])
    written = [line.rstrip() for line in text.splitlines()]
    for first, indent in (("  - word", 4), ("  1. Move it: do", 5), ("     Reason: slow", 5)):
        (position,) = [n for n, line in enumerate(written) if line.startswith(first)]
        wrapped = written[position + 1]
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


def test_large_differences_of_losses_are_not_called_equal() -> None:
    for difference, sentence in (
        (0.0, "Losses: identical (1 first loss)."),
        (3e-7, "Losses: equal up to 3e-07 of their value (1 first loss)."),
        (0.0123, "Losses: differ by up to 1.2% (1 first loss)."),
        (0.35, "Losses: differ by up to 35% (1 first loss)."),
    ):
        fields = {"max_relative_difference": difference, "own_relative_difference": 0}
        assert describe_losses(LossComparison(loss_count=1, **fields)) == sentence


def test_counts_agree_with_their_nouns() -> None:
    for name, singular, plural in (
        ("num_workers", "1 DataLoader worker", "2 DataLoader workers"),
        ("intra_op_threads", "1 intra-op thread", "2 intra-op threads"),
        ("batch_size", "batches of 1 sample", "batches of 2 samples"),
        ("thread_prefetch", "1 batch ahead by a thread", "2 batches ahead by a thread"),
    ):
        assert [CHANGES[name].describe(value) for value in "12"] == [singular, plural]


NAME = "aten::convolution_backward_of_a_rather_long_name"
NUMBERS = ("37.4 ms", "1,234 µs", "+125.5 %", "+57.2 µs to +108 µs")
HEADINGS = ("base", "run", "change", "95 % interval")


def lines(width: int, name: str = NAME, headings: tuple[str, ...] = HEADINGS) -> list[str]:
    rows = table("call", *headings)
    rows.add_row(name, *NUMBERS)
    out = io.StringIO()
    Console(file=out, width=width).print(rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


NEEDED = sum(map(len, NUMBERS)) + 2 * (len(NUMBERS) + 1)
"""What the numbers take, with the gaps after all five columns."""


def test_what_fits_is_in_one_line() -> None:
    heading, row = lines(NEEDED + len(NAME))
    assert row.split("  ")[0] == NAME
    assert "95 % interval" in heading


@pytest.mark.parametrize("name_cells", [len(NAME) - 1, 30, MIN_NAME_CELLS])
def test_the_name_is_cut(name_cells: int) -> None:
    _, row = lines(NEEDED + name_cells)
    assert row.startswith(NAME[: name_cells - 1] + "…")
    for number in NUMBERS:
        assert number in row


def test_headings_go_on_below_before_a_name_is_cut() -> None:
    text = lines(
        NEEDED + len(NAME), headings=("base", "run", "change", "an interval of 95 per cent")
    )
    assert len(text) == 3
    assert text[-1].startswith(NAME)
    assert " ".join(line.split("change")[-1].strip() for line in text[:2]) == (
        "an interval of 95 per cent"
    )


def test_numbers_that_do_not_fit_go_on_below() -> None:
    text = lines(NEEDED)
    assert not [line for line in text if len(line) > NEEDED]
    words = " ".join(text).split()
    for number in NUMBERS:
        for word in number.split():
            assert word in words
    assert sum("…" in word for word in words) == 1


def test_text_columns_may_still_wrap() -> None:
    rows = table("a note of several words", "time")
    rows.columns[0].no_wrap = False
    rows.add_row("it goes on below where there is no room for it", "37.4 ms")
    out = io.StringIO()
    Console(file=out, width=30).print(rows)
    text = " ".join(out.getvalue().split())
    assert "37.4 ms" in text
    assert "…" not in text


def test_suggested_commands_name_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in cells of tables, and in any style; what names no run stays as it is."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(sys, "argv", ["stepscope"])
    run = str(tmp_path / "a run")
    out = console(run)
    out.print(Text.assemble("Ranges: ", ("`stepscope show RUN timeline` draws them.", "bold")))
    rows = table("command")
    rows.add_row("see `stepscope diagnose RUN`, `stepscope run -- CMD`")
    out.print(rows)
    out.print(Padding(Text("stepscope show RUN steps", style="dim"), (0, 0, 0, 4)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Ranges: `stepscope show '{run}' timeline` draws them."
    assert lines[2] == f"see `stepscope diagnose '{run}'`, `stepscope run -- CMD`"
    assert lines[3] == f"    stepscope show '{run}' steps"
    console().print("`stepscope show RUN timeline`")
    assert capsys.readouterr().out == "`stepscope show RUN timeline`\n"
