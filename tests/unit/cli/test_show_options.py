"""Options of `show`: each view says which it looks at, and no other is swallowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stepscope.cli.show import command
from stepscope.errors import UsageError
from stepscope.testing import RunBuilder
from stepscope.views import OPTION_FLAGS, VIEWS, View, ViewOptions, parse_option
from tests.support.command import run_command
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
