"""Text for terminals: any payload by one writer, encodings, widths, styles."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from stepscope.cli import COMMANDS
from stepscope.cli.options.common import FIRED
from stepscope.cli.text import console, printable, table
from stepscope.cli.writers.generic import LEVELS, cut, text_of, write_generic
from stepscope.cli.writers.live import live_text
from stepscope.schema import FieldLabel, RuleRecord, Unit, field_label
from stepscope.schema.labels import Display
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS
from stepscope.watch import Observer
from tests.support.access_run import draw
from tests.support.command import run_command

TEXTS = [
    ["diagnose", "run"],
    *(["show", "run", view] for view in VIEWS if not VIEWS[view].needs),
    ["compare", "run", "run"],
    ["cost", "run"],
    ["rules", "list"],
    ["rules", "explain", "LowGPUUtilization"],
    ["rules", "check", "run"],
    ["watch", "run"],
    *([command, "--help"] for command in COMMANDS),
    ["run", "--help-all"],
]
FITTED = {"diagnose", "show", "compare", "cost"}
"""The others list one rule, finding or option per line, however long; commands are never broken."""
IMPORTANT = [["diagnose", "run"], ["show", "run", "steps"], ["rules", "--help"], ["diagnose", "ü…"]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("terminals")
    draw(directory / "run").open()
    return directory


@pytest.mark.slow("evaluates every view")
def test_every_text_can_be_written_in_ascii_in_60_columns(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for arguments in TEXTS:
        done = run_command(directory, *arguments, encoding="ascii")
        assert done.returncode in {0, FIRED}, arguments
        for line in (done.stdout + done.stderr).splitlines():
            assert line.isascii()
            assert "\\" not in line, f"spell a character of {arguments}"
            assert line == line.rstrip(), f"{arguments} has trailing blanks"
            fits = (
                len(line.replace("...", "…")) <= 60
                or "stepscope" in line
                or arguments[0] not in FITTED
            )
            assert fits, f"{arguments} is wider than 60 columns: {line}"


def test_names_of_users_are_escaped(directory: Path) -> None:
    for name, text in (("run…", "run..."), ("a\udcffb", "a\\udcffb"), ("中", "\\u4e2d")):
        done = run_command(directory, "diagnose", name, encoding="ascii")
        assert done.returncode == 2
        assert f" {text} does not exist" in done.stderr
    assert "中 does not exist" in run_command(directory, "diagnose", "中").stderr
    assert "a\\udcffb does not exist" in run_command(directory, "diagnose", "a\udcffb").stderr


def test_latin_1(directory: Path) -> None:
    for arguments in IMPORTANT:
        done = run_command(directory, *arguments, encoding="latin-1")
        expected = run_command(directory, *arguments)
        assert done.returncode == expected.returncode
        assert ("·" in done.stdout) == ("·" in expected.stdout)
    assert "ü..." in done.stderr


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_a_process_in_an_ascii_locale(directory: Path, variables: dict[str, str]) -> None:
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} | variables
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "diagnose", "run"],
        capture_output=True,
        cwd=directory,
        env=environment,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    bar = next(line for line in done.stdout.splitlines() if line.startswith(b"  ##"))
    assert b"####" in bar
    assert done.stdout.isascii()


def test_json_is_utf_8(directory: Path) -> None:
    rules = run_command(directory, "rules", "list", "--json").stdout
    assert not rules.isascii()
    assert run_command(directory, "rules", "list", "--json", encoding="ascii").stdout == rules
    markdown = ["compare", "run", "run", "--markdown", "-"]
    document = run_command(directory, *markdown).stdout
    assert run_command(directory, *markdown, encoding="ascii").stdout == document


def test_columns_stay_aligned() -> None:
    lines = run_narrow_table("utf-8"), run_narrow_table("ascii")
    for ours, plain in zip(*lines, strict=True):
        assert len(ours) == len(plain)
    assert "abcdefghijk..." in lines[1][1]


def run_narrow_table(encoding: str) -> list[str]:
    """Print a table whose name is cut in a process, so that its streams can be replaced."""
    code = (
        "from stepscope.cli.startup import prepare_streams; prepare_streams()\n"
        "from stepscope.cli.text import console, table\n"
        "rows = table('name', 'time', 'count')\n"
        "rows.add_row('abcdefghijklmnopqrstuvwxyz', '1 µs', '4')\n"
        "rows.add_row('b', '123,456 µs', '12')\n"
        "console().print(rows)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "32"},
        timeout=60,
    )
    return done.stdout.decode(encoding).splitlines()


@pytest.mark.parametrize("columns", [60, 140, None])
def test_a_pipe_is_as_wide_as_columns(
    directory: Path, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    width = columns or 100
    text = run_command(directory, "diagnose", "run").stdout
    lines = [line for line in text.splitlines() if "stepscope" not in line]  # not broken: to paste
    assert width - 20 < max(map(len, lines)) <= width


@pytest.mark.parametrize("columns", ["0", "-5", "many", ""])
def test_an_unusable_width_is_ignored(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width == 100


def test_no_color_means_no_escape(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in run_command(directory, "diagnose", "run").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in IMPORTANT:
        assert "\x1b" not in run_command(directory, *arguments).stdout, arguments


def test_a_closed_pipe_is_no_error_to_report(directory: Path) -> None:
    command = [sys.executable, "-m", "stepscope", "show", "run", "steps", "--json"]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(command, cwd=directory, stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, b"")


def test_blanks_inside_a_line_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("a", "b")
    rows.add_row("", "1")
    rows.add_row("x", "")
    out = console()
    out.print(rows)
    out.print("  indented  ", "words  ")
    assert capsys.readouterr().out == "a  b\n   1\nx\n  indented   words\n"


class Row(msgspec.Struct, kw_only=True):
    name: str = "gemm"
    count: int = 1234567
    total_ns: int | None = 1_500_000
    share_ratio: float | None = 0.25


class Wide(msgspec.Struct, kw_only=True):
    name: str
    first_quantity_ns: int = 1_000
    second_quantity_ns: int = 2_000
    third_quantity_ns: int = 3_000
    fourth_quantity_ns: int = 4_000


class Both(msgspec.Struct, kw_only=True):
    name: str = "a"
    idle_ns: int = 5
    idle_ratio: float = 0.5


class Note(msgspec.Struct, kw_only=True):
    sentence: str


class Part(msgspec.Struct, kw_only=True):
    rank: int | None = 0
    trace: str = "a.json"
    busy_ns: int | None = None
    used_bytes: int = 2_500_000
    flag: bool = True
    rows: list[msgspec.Struct] = []
    by_name: dict[str, int] = {}
    level_curve: list[float] = []
    missing: str | None = None
    notes: list[str] = []
    quality: list[Note] = []


class Payload(msgspec.Struct, kw_only=True):
    share_of: str = "all of it"
    traces: list[Part] = []
    missing: str | None = None


def text(payload: msgspec.Struct, width: int = 80) -> str:
    stream = io.StringIO()
    write_generic(Console(file=stream, width=width, highlight=False), payload)
    return stream.getvalue()


def lines(payload: msgspec.Struct, width: int = 80) -> list[str]:
    return [line.rstrip() for line in text(payload, width).splitlines()]


def test_scalars_have_their_units() -> None:
    payload = lines(Payload(traces=[Part()]))
    assert "shares of: all of it" in payload
    assert "rank 0  a.json" in payload
    assert "busy  n/a" in payload  # missing is not zero
    assert "used  2.38 MiB" in payload
    assert "flag  yes" in payload


def test_lists_of_scalars_are_tables() -> None:
    payload = lines(Payload(traces=[Part(rows=[Row(), Row(name="add", share_ratio=None)])]))
    at = payload.index("rows")
    assert payload[at + 1].split() == ["name", "count", "total", "share"]
    assert payload[at + 2].split() == ["gemm", "1,234,567", "1.5", "ms", "25.0%"]
    assert payload[at + 3].split() == ["add", "1,234,567", "1.5", "ms", "n/a"]


def test_a_quantity_and_its_share_have_two_headings() -> None:
    payload = lines(Payload(traces=[Part(rows=[Both()])]))
    assert "share" in " ".join(payload)


def test_what_has_no_room_beside_stands_below() -> None:
    name = "void " + "x" * 60 + " kernel"
    payload = text(Payload(traces=[Part(rows=[Wide(name=name)])]), width=44)
    assert max(len(line) for line in payload.splitlines()) <= 44
    assert "…" in payload
    for number in range(1, 5):
        assert f"{number} µs" in payload


def test_sentences_are_sentences() -> None:
    payload = lines(
        Payload(
            missing="no recording [here]",
            traces=[
                Part(missing="no kernel", notes=["a note"], quality=[Note(sentence="a doubt")])
            ],
        )
    )
    assert "no recording [here]" in payload
    assert {"no kernel", "a note", "! a doubt"} <= set(payload)


def test_names_that_look_like_markup() -> None:
    assert "[bold]x[/bold]" in text(Payload(traces=[Part(rows=[Row(name="[bold]x[/bold]")])]))


def test_mappings_and_curves() -> None:
    payload = lines(Payload(traces=[Part(by_name={"a": 1, "bcd": 2000}, level_curve=[0, 1, 2, 4])]))
    assert {"  a    1", "  bcd  2,000"} <= set(payload)
    (drawn,) = (line for line in payload if line.startswith("level curve"))
    assert drawn.split(maxsplit=2)[2].endswith("·▂▄█  up to 4")


def test_the_middle_of_a_long_name_is_left_out() -> None:
    assert cut("abcdefgh", 8) == "abcdefgh"
    assert cut("abcdefghi", 8) == "abc…fghi"
    assert len(cut("x" * 100, 31)) == 31


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        ("ns", 86_400_000, "86.4 ms"),
        ("epoch_ns", 1_700_000_000_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("epoch_ms", 1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("ratio", 0.0004, "<0.1%"),
        ("percent", 49.13, "49.1%"),
        ("bytes", 0, "0 B"),
        ("bytes_per_s", 1.5e9, "1.5 GB/s"),
        ("flop_per_s", 312e12, "312 TFLOP/s"),
        ("count", 12345, "12,345"),
        ("none", 0.123456, "0.1235"),
        ("ns", None, "n/a"),
    ],
)
def test_values(unit: Unit, value: float | None, shown: str) -> None:
    assert text_of(FieldLabel(title="a", unit=unit), value) == shown


@pytest.mark.parametrize(
    ("unit", "display", "value", "shown"),
    [
        ("none", "identifier", 1024, "1024"),
        ("ns", "change", 1_500, "+1.5 µs"),
        ("ratio", "change", -0.25, "-25.0%"),
        ("bytes", "file_size", 2_500_000, "2.5 MB"),
    ],
)
def test_values_with_a_display_hint(unit: Unit, display: Display, value: float, shown: str) -> None:
    assert text_of(FieldLabel(title="a", unit=unit, display=display), value) == shown


class Quantiles(msgspec.Struct, kw_only=True):
    count: int = 5
    p50: float = 1500.0


class Watched(msgspec.Struct, kw_only=True):
    step_ns: Quantiles
    unit: str = "watt"
    value: float = 250.0
    queue: Annotated[float, field_label("mean queue depth", unit="count")] = 1.5


def test_numbers_without_a_unit_have_that_of_their_holder() -> None:
    payload = lines(Watched(step_ns=Quantiles()))
    assert payload[payload.index("step") + 2].split() == ["5", "1.5", "µs"]
    assert {"value             250 W", "mean queue depth  1.5"} <= set(payload)


def test_what_names_say_is_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    write_generic(
        out, Payload(traces=[Part(trace="a\x1b]0;t\x07", rows=[Row(name="g\n\x1b[31m")])])
    )
    text = capsys.readouterr().out
    assert "a␛]0;t" in text
    assert "g␊␛[31m  1,234,567" in text
    assert not set(text) & {"\x1b", "\x07"}


def test_pictures_of_control_characters() -> None:
    assert printable("a\tb\x7f\x85\u202e") == "a␉b␡\ufffd\ufffd"
    assert printable("Größe 漢字 s") == "Größe 漢字 s"


def test_watch_draws_step_time_and_utilization_in_a_terminal_only(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    rank = builder.rank(0)
    step_ms = [100 + 10 * number for number in range(60)]
    for duration_ms in step_ms:
        rank.draw(f"forward {duration_ms - 20} | optimizer 20")
    builder.metric("cpu_busy_ratio", 0.25)
    for device, ratio in (("0", 0.5), ("1", 1.0)):
        builder.metric("gpu_busy_ratio", ratio, device=device)
    record = RuleRecord(progress="running", end_ns=None, scan_ns=1, written_ns=0, findings=[])
    view = Observer(builder.open().reader).observe(record)
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, legacy_windows=False)
    with terminal.capture() as capture:
        terminal.print(live_text(view))
    lines = [Text.from_ansi(line).plain for line in capture.get().splitlines()]
    assert max(map(len, lines)) <= 80
    heights = [round(8 * duration_ms / max(step_ms)) for duration_ms in step_ms[-50:]]
    sample_count = len(view.curves.cpu_busy_ratio)
    assert [line for line in lines if line.startswith(("step ", "GPU ", "CPU "))] == [
        f"step     {''.join(LEVELS[height] for height in heights)}  200 ms to 690 ms",
        f"GPU      {LEVELS[6] * sample_count}  75% to 75%",
        f"CPU      {LEVELS[2] * sample_count}  25% to 25%",
    ]
    for plain in (
        Console(file=io.StringIO(), width=80),
        Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None),
    ):
        with plain.capture() as capture:
            plain.print(live_text(view))
        assert not set(LEVELS[1:]) & set(capture.get())
