"""`stepscope show`: options of each view, tables in files, and the schemas of outputs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import openpyxl
import pytest

from stepscope.cli.commands.show import command
from stepscope.errors import UsageError
from stepscope.testing import RunBuilder
from stepscope.views import OPTION_FLAGS, VIEWS, View, ViewOptions, parse_option
from tests.support.command import run_command
from tests.support.imported_runs import import_into
from tests.support.kineto_files import trace, training
from tests.support.served import serving


def test_every_option_has_a_flag_and_a_default() -> None:
    assert set(OPTION_FLAGS) == set(ViewOptions.__struct_fields__)
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert set(OPTION_FLAGS.values()) <= flags


def test_every_view_names_options_that_there_are() -> None:
    for view in VIEWS.values():
        assert set(view.uses) <= set(OPTION_FLAGS)


def test_the_help_says_which_view_looks_at_what() -> None:
    help_of = {parameter.name: getattr(parameter, "help", None) for parameter in command.params}
    for name, view in VIEWS.items():
        for field in set(view.uses) - {"rank", "trace"}:
            assert name in (help_of[field] or "")


@pytest.mark.parametrize(
    ("view", "options", "sentence"),
    [
        ("system", {"rank": 1}, "The view system does not accept --rank. Options: --from, --to."),
        (
            "gpu-time",
            {"top": 20},
            "does not accept --top. Options: --carry-over, --communication, --rank, --trace, "
            "--from, --to.",
        ),
        ("overview", {"top": 3, "bucket_ns": 5}, "does not accept --top and --bucket"),
    ],
)
def test_an_option_that_means_nothing(view: str, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        VIEWS[view].make_options(view, options)
    assert sentence in str(caught.value)


def test_a_grouping_that_there_is_not() -> None:
    view = View(lambda _run, options: options, ("by",), ("name", "shape"))
    assert view.make_options("v", {"by": "shape"}).by == "shape"
    with pytest.raises(UsageError, match="Use --by name or shape"):
        view.make_options("v", {"by": "colour"})


@pytest.mark.parametrize(
    ("text", "ns"), [("10ms", 10_000_000), ("250us", 250_000), ("1.5 s", 1_500_000_000), ("7NS", 7)]
)
def test_durations(text: str, ns: int) -> None:
    assert parse_option("bucket_ns", text) == ns


@pytest.mark.parametrize(
    "text", ["10", "ms", "0ms", "-5ms", "10 minutes", "1e400s", "1e20s", "nan s"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_option("bucket_ns", text)


def test_a_time_may_be_the_origin_and_a_width_may_not_be_nothing() -> None:
    assert parse_option("from_ns", "0s") == 0
    with pytest.raises(UsageError, match="--bucket"):
        parse_option("bucket_ns", "0s")


@pytest.mark.parametrize(
    ("field", "text"), [("top", "-1"), ("rank", "one"), ("carry_over", "maybe"), ("pixels", "0")]
)
def test_values_that_an_option_cannot_have(field: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"{OPTION_FLAGS[field]}: invalid value '{text}'"):
        parse_option(field, text)


def test_options_from_an_address() -> None:
    texts = {"bucket_ns": "250", "rank": "1"}
    options = VIEWS["launches"].parse_options("launches", texts)
    assert options == ViewOptions(bucket_ns=250, rank=1)
    with pytest.raises(UsageError, match="There is no option colour"):
        VIEWS["launches"].parse_options("launches", {"colour": "red"})


def test_a_range_after_the_end_of_the_run(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("wait 50 | forward 12 | backward 20 | optimizer 18", 340)
    run.write()

    def show(*options: str) -> subprocess.CompletedProcess[str]:
        return run_command(tmp_path, "show", "run", "steps", *options)

    done = show("--from", "999s")
    assert (done.returncode, done.stderr) == (
        2,
        "stepscope: The range starts at 16 min 39 s, after the end of the run: its times are from "
        "0 s to 34 s.\n",
    )
    assert not done.stdout
    done = show("--from", "9s", "--to", "3s")
    assert done.returncode == 2
    assert done.stderr == "stepscope: The range ends before it starts, at 3 s.\n"
    assert show("--from", "33s", "--to", "999s").returncode == 0
    with serving(tmp_path) as server:  # a page scrolls next to the data
        assert server.view("steps", "run", from_ns="999s").status == 200


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("traces")
    (base / "trace.json").write_bytes(trace(*training()))
    import_into(base / "run", base / "trace.json")
    return base / "run"


def show_table(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(cwd, "show", *map(str, arguments))


@pytest.mark.seed("PTP-16")
def test_csv_has_the_values_of_the_json(run: Path, tmp_path: Path) -> None:
    payload = json.loads(show_table(tmp_path, run, "kernels", "--json").stdout)
    expected = payload["traces"][0]["kernels"]
    done = show_table(tmp_path, run, "kernels", "--csv", "-")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["name"] for row in rows] == [kernel["name"] for kernel in expected]
    assert [int(row["total_ns"]) for row in rows] == [kernel["total_ns"] for kernel in expected]
    assert not done.stderr

    written = show_table(tmp_path, run, "kernels", "--csv", "kernels.csv", "--table", "traces")
    assert not written.stdout
    assert "kernels.csv: traces (1 row); tables of this view: summary (1 row), " in written.stderr
    with (tmp_path / "kernels.csv").open(newline="") as file:
        assert [row["trace"] for row in csv.DictReader(file)] == ["trace.json"]


@pytest.mark.seed("PTP-16")
def test_workbook_has_a_sheet_per_table(run: Path, tmp_path: Path) -> None:
    done = show_table(tmp_path, run, "kernels", "--xlsx", "kernels.xlsx")
    assert done.returncode == 0, done.stderr
    names = openpyxl.load_workbook(tmp_path / "kernels.xlsx").sheetnames
    assert {"summary", "traces", "kernels", "columns"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernels", "--csv", "-", "--json"], "Use one of --json, --csv."),
        (["kernels", "--table", "kernels"], "--table requires --csv"),
        (
            ["kernels", "--csv", "-", "--table", "none"],
            "no table 'none' with rows. Choose one with --table: summary, traces, kernels",
        ),
        (["kernels", "--csv", "."], ". is a directory; pass a file"),
        (["kernels", "--csv", "nowhere/x.csv"], "nowhere"),
        (["kernels", "--xlsx", "."], "is a directory"),
        (["kernels", "--xlsx", "nowhere/x.xlsx"], "nowhere"),
        (["system", "--csv", "-"], "The view system of this run has no rows: "),
    ],
)
def test_one_sentence(run: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = show_table(tmp_path, run, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_without_xlsxwriter(run: Path, tmp_path: Path) -> None:
    with mock.patch.dict(sys.modules, {"xlsxwriter": None}):
        done = show_table(tmp_path, run, "kernels", "--xlsx", "x.xlsx")
    assert done.returncode == 2
    assert "xlsxwriter is not installed: pip install 'stepscope[xlsx]', or use `" in done.stderr
    assert "--csv FILE`" in done.stderr
    assert not list(tmp_path.iterdir())


OUTPUTS = [
    "show run overview", "show run steps", "show run usage", "diagnose run", "cost run",
    "rules check run", "rules list", "rules explain StepOutlier", "report run", "compare run run",
    "recover run", "doctor",
]  # fmt: skip


def read_schema(directory: Path, *name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(run_command(directory, "schema", *name).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a run."""
    directory = tmp_path_factory.mktemp("schema")
    RunBuilder(directory / "run").write()
    return directory


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_follows_its_schema(directory: Path, output: str) -> None:
    words = output.split()
    payload = json.loads(run_command(directory, *words, "--json").stdout)
    name = (
        words[2:] if words[0] == "show" else [w for w in words if w not in {"run", "StepOutlier"}]
    )
    schema = read_schema(directory, *name)
    jsonschema.Draft202012Validator(schema).validate(payload)
    assert not jsonschema.Draft202012Validator(schema).is_valid("nothing")


@pytest.mark.slow("evaluates every view")
def test_every_name_has_a_schema(tmp_path: Path) -> None:
    names = run_command(tmp_path, "schema").stdout.splitlines()
    assert {"overview", "diagnose", "rules check", "watch", "import", "export"} <= set(names)
    for name in names:
        assert read_schema(tmp_path, *name.split())["$defs"]


def test_an_unknown_name_is_answered_with_the_one_meant(tmp_path: Path) -> None:
    answer = run_command(tmp_path, "schema", "rules", "chek")
    assert answer.returncode == 2
    assert "Nothing named 'rules chek' prints JSON. Did you mean rules check?" in answer.stderr
    unknown = run_command(tmp_path, "schema", "xyz").stderr
    assert "Nothing named 'xyz' prints JSON. List the names with `stepscope schema`." in unknown
