"""`stepscope cost` as people and machines read it, and what `stepscope run` keeps of prices."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from stepscope.cli.commands.cost import command
from stepscope.cli.options.common import recorded_prices
from stepscope.cli.writers import write
from stepscope.cli.writers.cost import write_before_after
from stepscope.comparison.before_after import NO_FULL_RUN, Side, compare_before_after
from stepscope.comparison.compare import compare_runs
from stepscope.cost.cost_report import Cost
from stepscope.cost.prices import ENVIRONMENT
from stepscope.cost.right_sizing import RightSizing, SmallerChoice
from stepscope.quantities import dollars
from stepscope.testing import RunBuilder

STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"
OWN = '[[groups]]\nas_of = 2026-05-01\ninstances = [{ type = "rig", usd_per_hour = 36 }]\n'


def starving(path: Path, wait: int = 60) -> RunBuilder:
    run = RunBuilder(path)
    process = run.rank(workers=1)
    for _ in range(2):
        process.draw("start 0").draw(STEP.replace("60", str(wait)), 100).draw("exhausted 0")
    process.workers[0].draw(f"fetch {wait + 35}", 200)
    return run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(starving(tmp_path_factory.mktemp("cost") / "run").write())


def asked(*arguments: str) -> str:
    done = CliRunner().invoke(command, list(arguments))
    assert done.exception is None, done.output
    return done.output


def test_the_text(path: str) -> None:
    text = asked(path, "--usd-per-hour", "36", "--epochs", "30")
    assert "$0.20 for 1 x $36.00 an hour x 20 s" in text
    assert "set on the command line" in text
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line}
    assert rows["a step"][-1] == "$0.00100"
    assert rows["an epoch"][-1] == "$0.10"
    assert rows["30 epochs"][-1] == "$3.00"
    assert rows["a million samples"][-1] == "$31.25"
    assert "data pipeline" in rows
    assert "No smaller machine recommended: no GPU was sampled" in " ".join(text.split())


def test_a_share_says_what_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table would break the cells
    run = RunBuilder(tmp_path / "run")
    process = run.rank(workers=0)
    for _ in range(100):
        process.draw("wait 5 | h2d 55 | forward 12 | backward 20 | optimizer 8 | predict 400")
    text = asked(str(run.write()), "--usd-per-hour", "36")
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert "a step with its evaluation 500 ms $0.00500" in rows
    shares = " ".join(text.split())
    assert "80% step with its evaluation $0.00400 $28.80" in shares
    assert "55% step $0.000550 $3.96" in shares
    assert "Evaluate less at a time: if evaluation took a tenth of its time" in shares


def test_json(path: str) -> None:
    payload = json.loads(asked(path, "--instance-type", "p3.2xlarge", "--json"))
    assert payload["price"]["as_of"] == "2026-01-19"
    assert payload["hour_usd"] == 3.06


AMOUNT = "is not a number above 0 and at most 1,000,000,000."
PRICE = "is not a price in dollars per hour, e.g. 3.06 (at most a million)."


@pytest.mark.parametrize(
    ("option", "values", "says"),
    [
        ("--epochs", "nan inf -1 0 1e10 many", AMOUNT),  # NaN is below and above nothing
        ("--hours", "nan inf -1 0 1e10 many", AMOUNT),
        ("--usd-per-hour", "nan inf -1 1e30 1e999999 1e99999999999 much", PRICE),
    ],
)
def test_what_is_no_amount(option: str, values: str, says: str) -> None:
    for wrong in values.split():
        done = CliRunner().invoke(command, ["run", option, wrong])
        assert done.exit_code == 2
        assert f"'{wrong}' {says}" in done.output


def test_without_a_price(path: str) -> None:
    text = " ".join(asked(path).split())
    assert "No price: machine price not known" in text
    assert "--instance-type" in text


def test_a_file_of_prices(path: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    text = asked(path, "--instance-type", "rig", "--prices", str(file))
    assert "price of rig, from your own price file, as of 2026-05-01" in text


def test_what_a_run_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A price of the user's own is kept in the run; a published one is looked up later."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    nothing = {"usd_per_hour": None, "instance_type": None, "price_source": None}
    assert recorded_prices(None, None, None) == nothing
    assert recorded_prices("3", "rig", file) == {
        "usd_per_hour": "3", "instance_type": "rig", "price_source": None
    }  # fmt: skip
    text = "price of rig, from your own price file, as of 2026-05-01"
    options = {"usd_per_hour": "36", "instance_type": "rig", "price_source": text}
    assert recorded_prices(None, "rig", file) == options
    monkeypatch.setenv(ENVIRONMENT, str(file))
    assert recorded_prices(None, "rig", None) == options
    assert recorded_prices(None, "p3.2xlarge", None) == nothing | {"instance_type": "p3.2xlarge"}
    assert capsys.readouterr().err == ""
    assert recorded_prices(None, "q9.nano", None) == nothing | {"instance_type": "q9.nano"}
    assert "no price found for q9.nano" in capsys.readouterr().err


def test_advice_as_text() -> None:
    choice = SmallerChoice(
        instance_type="ml.p3.2xlarge",
        instance_count=2,
        usd_per_hour=3.825,
        price_origin="price of ml.p3.2xlarge, as of 2020-12-10",
        job_usd=1.07,
        saving_usd=5.09,
        saving_ratio=0.826,
        gpu_p95_ratio=0.81,
        cpu_mean_ratio=0.58,
        cpu_p95_ratio=1.46,
        memory_ratio=0.5,
        gpu_memory_ratio=0.375,
        caution="peaks would take longer",
    )
    advice = RightSizing(
        headline="2 instead of 3.", choices=[choice], evidence=["a: low"], assumptions=["b holds"]
    )
    empty: dict[str, object] = dict.fromkeys(Cost.__struct_fields__)
    empty |= {"run_id": "r", "instance_count": 3, "duration_ns": 1, "machine_hours": 1.0}
    empty |= {"fixes": [], "projections": [], "right_sizing": advice, "damage": []}
    out = io.StringIO()
    write(Console(file=out, width=120), Cost(**empty))
    text = out.getvalue()
    for part in (
        "2 x ml.p3.2xlarge", "$1.07", "$5.09 (82.6%)", "81%", "- a: low", "- if b holds",
        "2 x ml.p3.2xlarge: peaks would take longer", "as of 2020-12-10",
    ):  # fmt: skip
        assert part in text


def test_before_and_after_as_text(tmp_path: Path) -> None:
    one, two = starving(tmp_path / "a"), starving(tmp_path / "b", wait=10)
    out = io.StringIO()
    write(Console(file=out, width=120), compare_runs([one.open()], [two.open()], epochs=3))
    text = out.getvalue()
    assert "10 s → 5 s" in text
    assert "30 s → 15 s" in text
    assert "-50.0%" in text
    assert "2x speedup by the epoch" in text
    assert "0.004167 instance-hours of 3 epochs saved" not in text  # three digits, as everywhere
    assert "0.00417 instance-hours of 3 epochs saved" in text
    assert "machine price not known" in text


def test_notes_are_shown_without_a_table() -> None:
    out = io.StringIO()
    write_before_after(
        Console(file=out, width=120), compare_before_after(Side(name="a", notes=["b"]), Side(), 3)
    )
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "",
        "a: b",
        NO_FULL_RUN.format(epochs=3, known="neither"),
    ]


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, "n/a"),
        (0, "$0.00"),
        (0.25, "$0.25"),
        (0.0123456, "$0.0123"),
        (0.0000123456, "$0.0000123"),
        (5800.29, "$5,800.29"),
    ],
)
def test_dollars(usd: float | None, text: str) -> None:
    assert dollars(usd) == text
