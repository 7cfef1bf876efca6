"""Options that plan windows and tensors, defaults of options, and errors as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from stepscope.cli.commands.capture import command as capture
from stepscope.cli.commands.configure import command as configure
from stepscope.cli.options.recording import tensor_options
from stepscope.cli.options.windows import ScheduleOptions
from stepscope.errors import StepscopeError, UsageError
from stepscope.run.job.requests import choose_contents
from stepscope.schema import WindowSchedule
from stepscope.spool import TensorPlan
from stepscope.spool.plan import OPTIONS
from stepscope.testing import RunBuilder
from tests.support.command import run_command

NOTHING: dict[str, Any] = dict.fromkeys(
    ("start_steps", "num_steps", "start_times", "durations", "repeat_intervals", "schedules"), ()
)


def flags(*planned: str) -> dict[str, bool]:
    return {name: name in planned for name in OPTIONS}


def plan(*contents: str, full: bool = True, **options: tuple[Any, ...]) -> list[WindowSchedule]:
    values = NOTHING | options
    return ScheduleOptions(**values, full=full, **flags(*contents)).planned


def parse(*texts: str) -> tuple[WindowSchedule, ...]:
    """Parse values of `--schedule`."""
    arguments = [word for text in texts for word in ("--schedule", text)]
    context = configure.make_context("configure", ["somewhere", *arguments])
    schedules: tuple[WindowSchedule, ...] = context.params["schedules"]
    return schedules


def test_a_window_by_steps_and_one_by_time() -> None:
    (by_steps,) = plan(start_steps=(0,), num_steps=(5,), repeat_intervals=(9,))
    assert by_steps == WindowSchedule(first_step=0, step_count=5, interval=9)
    (by_time,) = plan("shapes", start_times=(3.0,), durations=(0.5,))
    assert by_time == WindowSchedule(start_s=3.0, duration_s=0.5, options=["shapes"])
    assert plan() == []


@pytest.mark.seed("DBP-09")
def test_a_window_of_one_step_needs_no_length() -> None:
    (single,) = plan(start_steps=(7,))
    assert single == WindowSchedule(first_step=7, step_count=1)


@pytest.mark.seed("DBP-03", "DBP-10")
def test_several_schedules() -> None:
    planned = plan(
        start_steps=(10, 100),
        num_steps=(5, 20),
        schedules=parse("start_step=300,num_steps=2,every=50", "start_time=60,duration=1.5"),
    )
    assert planned == [
        WindowSchedule(first_step=10, step_count=5),
        WindowSchedule(first_step=100, step_count=20),
        WindowSchedule(first_step=300, step_count=2, interval=50),
        WindowSchedule(start_s=60, duration_s=1.5),
    ]


@pytest.mark.seed("DBP-09")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start_steps": (1,), "start_times": (1.0,)}, "--start-step conflicts with --start-time"),
        ({"start_steps": (1,), "num_steps": (1,), "durations": (1.0,)}, "requires --start-time"),
        ({"start_times": (1.0,)}, "--start-time requires --duration"),
        ({"num_steps": (4,)}, "--num-steps requires --start-step"),
        ({"repeat_intervals": (4,)}, "--every requires --start-step or --start-time"),
        (
            {"start_steps": (1,), "num_steps": (5,), "repeat_intervals": (5,)},
            "would overlap at --every 5",
        ),
        ({"start_steps": (1, 50), "num_steps": (5,)}, "times; set both equally often"),
        ({"start_steps": (1, 5), "num_steps": (4, 4)}, "which these do not have at step 5"),
        ({"start_times": (1, 5), "durations": (4, 4)}, "do not have at 5 s after the start"),
        ({"full": False}, "Set the start of the window"),  # a light one that nothing opens
    ],
)
def test_what_cannot_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan(**options)


def test_cycles_of_steps() -> None:
    planned = plan(schedules=parse("wait=5,warmup=2,active=10,repeat=3,skip_first=20"))
    assert planned == [
        WindowSchedule(first_step=27, step_count=10, warmup_count=2, interval=17, repeat_count=3)
    ]


NO_CYCLES = {
    "": "'' is none of wait, warmup, active",
    "wait=1,warmup=1": "active must be set",
    "active=1": "wait and warmup must be set",
    "wait=1,warmup=1,active=0": "active=0 must be a whole number of at least 1",
    "wait=-1,warmup=1,active=1": "'wait=-1' is not wait=N",
    "wait=1.5,warmup=1,active=1": "'wait=1.5' is not wait=N",
    "wait=1,wait=2,warmup=1,active=1": "wait is set twice",
    "wait=1,pause=2": "'pause' is none of",
    "wait=0,warmup=0,active=5": "windows need a gap",
    "start_step=1.5": "'start_step=1.5' is not start_step=N",
    "start_step=1,duration=2": "'duration' is none of start_step, num_steps, every",
    "start_step=1,num_steps=0": "'num_steps=0' is too small or too large",
    "start_step=1,start_step=2": "start_step is set twice",
    "start_time=nan,duration=1": "'start_time=nan' is too small or too large",
    "start_time=1": "start_time requires duration",
    "start_step=1,num_steps=5,every=5": "would overlap",
}


@pytest.mark.parametrize(("text", "says"), NO_CYCLES.items())
def test_no_cycles(tmp_path: Path, text: str, says: str) -> None:
    done = run_command(tmp_path, "run", "--schedule", text, "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_contents() -> None:
    assert choose_contents(full=True, **flags("stacks", "shapes")).options == ["shapes", "stacks"]
    assert choose_contents(full=False, **flags()).depth == "light"
    with pytest.raises(UsageError, match="a light window has no operators"):
        choose_contents(full=False, **flags("shapes"))


def test_capture_wants_one_length() -> None:
    for length in ((), ("--steps", "3", "--seconds", "1")):
        result = CliRunner().invoke(capture, ["somewhere", *length])
        assert isinstance(result.exception, StepscopeError)
        assert "Set the length of the window with --steps N" in str(result.exception)


PLANS: list[Any] = []


@click.command()
@tensor_options
def tensor_command(tensors: TensorPlan | None) -> None:
    """Keep the plan."""
    PLANS.append(tensors)


def plan_tensors(*arguments: str) -> TensorPlan | None:
    result = CliRunner().invoke(tensor_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    last_plan: TensorPlan | None = PLANS.pop()
    return last_plan


def test_without_options_there_is_no_plan() -> None:
    assert plan_tensors() is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tensors", "weights, losses"], {"collections": ["weights", "losses"]}),
        (["--tensors-matching", "^fc", "--tensors-matching", "bias$"],
         {"patterns": ["^fc", "bias$"]}),
        (["--tensors", "losses", "--tensors-every", "7"],
         {"collections": ["losses"], "interval": 7}),
        (["--tensors", "activations", "--tensors-eval-every", "30"],
         {"collections": ["activations"], "evaluation_interval": 30}),
        (["--tensors", "losses", "--tensors-steps", "10:20"],
         {"collections": ["losses"], "first_step": 10, "end_step": 20, "interval": 1}),
        (["--tensors", "losses", "--tensors-steps", "10:"],
         {"collections": ["losses"], "first_step": 10, "interval": 1}),
        (["--tensors", "losses", "--tensors-ranks", "0,3"],
         {"collections": ["losses"], "ranks": [0, 3]}),
        (["--tensors", "weights", "--tensors-sharded", "whole"],
         {"collections": ["weights"], "joins_shards": True}),
        (["--tensors", "weights", "--tensors-sharded", "shards"], {"collections": ["weights"]}),
        (["--tensors", "losses", "--tensors-ranks", "all", "--tensor-histograms"],
         {"collections": ["losses"], "histograms": True}),
        (["--tensors-raw", "fc.*", "--tensors-raw", "gradient/.*"],
         {"raw_patterns": ["fc.*", "gradient/.*"]}),
        (["--tensors-raw", "fc.*", "--tensors-raw-limit", "2MB"],
         {"raw_patterns": ["fc.*"], "raw_limit_bytes": 2_000_000}),
    ],
)  # fmt: skip
def test_plans(arguments: list[str], expected: dict[str, Any]) -> None:
    result = plan_tensors(*arguments)
    assert result.fields == TensorPlan(**expected).fields


def test_single_steps() -> None:
    result = plan_tensors("--tensors", "losses", "--tensors-steps", "5,7,9")
    assert [step for step in range(300) if result.records_step(step)] == [5, 7, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tensors", "weight"], "'weight' is none of weights, biases, gradients, losses"),
        (["--tensors-matching", "("], "'(' is not a regular expression"),
        (["--tensors", "losses", "--tensors-steps", "5-9"],
         "'5-9' is neither a range of steps, such as 100:500, nor steps, such as 5,7,9."),
        (["--tensors", "losses", "--tensors-ranks", "first"],
         "'first' is neither all nor ranks, such as 0,4."),
        (["--tensors", "losses", "--tensors-steps", "-1:5"], "the first step at least 0"),
        (["--tensors", "losses", "--tensors-steps", "500:100"], "'500:100' is neither a range"),
        (["--tensors-every", "5"], "no tensor is selected; add --tensors, --tensors-matching or"),
        (["--tensors-raw", "("], "'(' is not a regular expression"),
        (["--tensors", "losses", "--tensors-raw-limit", "5MB"],
         "no tensor is recorded with its elements; add --tensors-raw, such as"),
        (["--tensors-raw", "fc", "--tensors-raw-limit", "much"], "'much' is not a size, e.g."),
        (["--tensors-sharded", "whole"],
         "no tensor is selected; add --tensors, --tensors-matching or"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(tensor_command, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


FILE = """
[tool.stepscope.show]
top = 3
csv = "-"
[tool.stepscope.rules.check]
rules = ["StepOutlier", "BatchSize"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a directory of a project with a run in it."""
    RunBuilder(tmp_path / "run").write()
    (tmp_path / "pyproject.toml").write_text(FILE)
    return tmp_path


def list_checked(answer: str) -> list[str]:
    return [result["rule"] for result in json.loads(answer)["findings"]]


def test_an_option_has_the_default_of_the_nearest_file(project: Path) -> None:
    below = project / "scripts"
    below.mkdir()
    (below / "pyproject.toml").write_text(
        "[project]\nname = 'other'\n"
    )  # says nothing of stepscope
    answer = run_command(below, "rules", "check", "../run", "--json")
    assert list_checked(answer.stdout) == ["StepOutlier", "BatchSize"]


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_RULES_CHECK_RULE", "Dataloader")
    by_environment = run_command(project, "rules", "check", "run", "--json")
    assert list_checked(by_environment.stdout) == ["Dataloader"]
    by_option = run_command(project, "rules", "check", "run", "--json", "--rule", "BatchSize")
    assert list_checked(by_option.stdout) == ["BatchSize"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[tool.stepscope.sho]", "tool.stepscope.sho is not a command. Did you mean show?"),
        ("[tool.stepscope.show]\ntops = 3", "show has no option tops. Did you mean top?"),
        ("[tool.stepscope.show]\ntop = true", "tool.stepscope.show.top must be a value."),
        ("[tool.stepscope.show]\njson = 3", "tool.stepscope.show.json must be true or false."),
        ("[tool.stepscope.show]\ntop = [1]", "tool.stepscope.show.top must be text or a number."),
        ("[tool.stepscope]\nshow = 3", "tool.stepscope.show is not a table of options."),
        ("[tool.stepscope.show", "pyproject.toml cannot be read: "),
        ("[tool.stepscope.rules.check]\nrule = [[1]]", "must be text, a number or a list of them."),
    ],
)
def test_a_mistake_in_the_file_is_named(project: Path, line: str, sentence: str) -> None:
    (project / "pyproject.toml").write_text(line)
    words = ("rules", "check", "run") if "rules" in line else ("show", "run")
    answer = run_command(project, *words)
    assert answer.returncode == 2
    assert sentence in answer.stderr


def test_an_error_is_json_where_the_output_is(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    for words in ("diagnose missing", "show run nothing", "show run --top x"):
        answer = run_command(project, *words.split(), "--json")
        assert not answer.stdout
        error = json.loads(answer.stderr)
        assert error["exit_code"] == answer.returncode == 2
        assert error["error"]
    job = run_command(
        project, *["run", "--start-step", "1", "--window", "off", "--", "x", "--json"]
    )
    assert job.returncode == 2
    assert job.stderr.startswith("stepscope: "), "JSON of a job is not that of stepscope"
