"""Settings of SageMaker Debugger as options of `stepscope run`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.commands.run import command as run
from stepscope.cli.options.debugger import read_settings, translate, translate_pattern
from stepscope.compat.debugger import (
    SMS,
    CollectionConfig,
    DataloaderProfilingConfig,
    DebuggerHookConfig,
    DetailedProfilingConfig,
    Email,
    FrameworkProfile,
    Profiler,
    ProfilerConfig,
    PythonProfilingConfig,
    Rule,
    SaveConfig,
    StopTraining,
    get_default_profiler_rule,
    rule_configs,
)
from stepscope.errors import UsageError
from tests.support.command import run_command

NOW_S = 1_000_000.0


def options(*settings: Any) -> dict[str, Any]:
    return translate(settings, now_s=NOW_S)[0]


def notes(*settings: Any) -> str:
    return " ".join(translate(settings, now_s=NOW_S)[1])


def profile(**fields: Any) -> dict[str, Any]:
    """Options of a profile with these fields."""
    return options(ProfilerConfig(framework_profile_params=FrameworkProfile(**fields)))


@pytest.mark.seed("DBP-02", "DBP-03", "DBP-11", "SMP-05")
def test_settings_of_the_profiler() -> None:
    steps = FrameworkProfile(start_step=2, num_steps=7)
    config = ProfilerConfig(system_monitor_interval_millis=200, framework_profile_params=steps)
    window = {"schedule": ["start_step=2,num_steps=7"], "window": "asked", "stacks": True}
    assert options(config) == {"interval": 200, **window}
    off = ProfilerConfig(framework_profile_params=steps, disable_profiler=True)
    assert options(off) == {"window": "off"}
    limited = ProfilerConfig(profiler_params=Profiler(cpu_profiling_duration=3600))
    assert options(limited) == {"cpu-profiling-duration": 3600}


@pytest.mark.seed("DBP-04", "DBP-05", "DBP-06")
def test_steps_and_times_of_each_part() -> None:
    assert profile()["schedule"] == ["start_step=5,num_steps=1", "start_step=9,num_steps=3"]
    assert DataloaderProfilingConfig().start_step == 7
    # Parts come before the range, and overlapping parts are one window.
    parts = {
        "detailed_profiling_config": DetailedProfilingConfig(start_step=10, num_steps=4),
        "python_profiling_config": PythonProfilingConfig(start_step=12, num_steps=6),
    }
    assert profile(start_step=100, **parts)["schedule"] == ["start_step=10,num_steps=8"]
    only_loader = profile(dataloader_profiling_config=DataloaderProfilingConfig())
    assert only_loader == {"schedule": [], "window": "asked"}
    # A window by time counts from the start of the job.
    timed = profile(start_unix_time=NOW_S + 60, duration=2.5)
    assert timed["schedule"] == ["start_time=60.000,duration=2.500"]


def test_rules_with_parameters_and_actions() -> None:
    low = Rule.sagemaker(
        rule_configs.low_gpu_utilization(),
        rule_parameters={"threshold": "70", "window": "500", "scan_interval_us": "30000000"},
    )
    spent = Rule.sagemaker(
        rule_configs.loss_not_decreasing(),
        rule_parameters={"num_steps": "20"},
        actions=rule_configs.ActionList(StopTraining(), Email("a@example.org"), SMS("1")),
    )
    assert options(low, spent, get_default_profiler_rule()) == {
        "rule": ["low_gpu_utilization", "loss_not_decreasing", "ProfilerReport"],
        "set": [
            "low_gpu_utilization.threshold_p95=70",
            "low_gpu_utilization.window=500",
            "loss_not_decreasing.num_steps=20",
        ],
        "stop-on": ["loss_not_decreasing"],
        "scan-interval": 30.0,
        "tensors": "losses",
        "tensors-every": 500,
    }
    assert "Email of the rule loss_not_decreasing is not sent" in notes(spent)
    assert "use --notify or --webhook" in notes(spent)


def test_a_custom_rule() -> None:
    rule = Rule.custom(
        name="Mine", source="rules/mine.py", rule_to_invoke="Mine", rule_parameters={"limit": 3}
    )
    assert options(rule) == {"rule": ["rules/mine.py:Mine"], "set": ["Mine.limit=3"]}
    with pytest.raises(ValueError, match="the rule Mine needs source and rule_to_invoke"):
        Rule.custom(name="Mine", source="rules/mine.py")


RELU = {"include_regex": ".*relu_output", "save_histogram": True}


@pytest.mark.parametrize(
    ("collections", "hook_parameters", "expected"),
    [
        (
            {"gradients": {"save_interval": "100"}},
            {},
            {"tensors": "gradients,losses", "tensors-every": 100},
        ),
        ({}, {}, {"tensors": "losses", "tensors-every": 500}),
        (
            {"weights": {}, "biases": {}},
            {"save_interval": "10", "start_step": "20", "end_step": "80"},
            {"tensors": "weights,biases,losses", "tensors-every": 10, "tensors-steps": "20:80"},
        ),
        (
            {"weights": {"save_interval": 6, "start_step": 3}, "gradients": {"save_interval": 4}},
            {},
            {"tensors": "weights,gradients,losses", "tensors-every": 2},
        ),
        (
            {"gradients": {"save_steps": "5,7,9"}},
            {},
            {"tensors": "gradients,losses", "tensors-steps": "5,7,9"},
        ),
        (
            {"mine": RELU},
            {},
            {"tensors": "losses", "tensors-every": 500, "tensor-histograms": True}
            | {"tensors-matching": [r"activation/.*relu(\.\d+)?"]},
        ),
        (
            {"losses": {}, "layers": {"eval.save_interval": "6"}},
            {"train.save_interval": "20", "save_interval": "3", "eval.save_interval": "4"},
            {"tensors": "losses,activations", "tensors-every": 20, "tensors-eval-every": 2},
        ),
        ({"hyperparameters": {}}, {}, {}),
    ],
)
@pytest.mark.seed("DBT-02", "DBT-03")
def test_collections(
    collections: dict[str, Any], hook_parameters: dict[str, str], expected: dict[str, Any]
) -> None:
    configs = [CollectionConfig(name, parameters) for name, parameters in collections.items()]
    hook = DebuggerHookConfig(collection_configs=configs, hook_parameters=hook_parameters)
    assert options(hook) == expected


def test_what_has_no_effect_is_said() -> None:
    hook = DebuggerHookConfig(save_config=SaveConfig(save_interval=50, end_step=300))
    assert options(hook) == {"tensors": "losses", "tensors-every": 50, "tensors-steps": "0:300"}
    saves = {"weights": {"save_interval": 6}, "gradients": {"save_interval": 4}}
    saves["losses"] = {"save_steps": "5,7"}
    hook = DebuggerHookConfig(
        s3_output_path="s3://bucket",
        collection_configs=[CollectionConfig(name, value) for name, value in saves.items()],
    )
    assert "save_steps 5,7 has no effect, because other collections have none" in notes(hook)
    assert "s3_output_path has no effect; name the run with --out" in notes(hook)
    assert "collections differ in the steps that they save" in notes(hook)


def test_expressions_match_a_start_of_a_name() -> None:
    for pattern, translated in (
        (".*relu_output", r"activation/.*relu(\.\d+)?"),
        ("fc1_input_0", r"input/fc1(\.\d+)?"),
        ("^(?!gradient).*weight", "(?!gradient).*weight.*"),
        ("^gradient", "gradient.*"),
        (r"fc\.bias$", r"fc\.bias"),
    ):
        assert translate_pattern(pattern) == translated


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: DetailedProfilingConfig(start_step=1, duration=2),
            "DetailedProfilingConfig has a range of steps and one of time",
        ),
        (lambda: FrameworkProfile(start_step=-1), "needs start_step of at least 0"),
        (lambda: FrameworkProfile(start_unix_time=5), "needs a duration of more than 0 seconds"),
        (
            lambda: ProfilerConfig(system_monitor_interval_millis=0),
            "system_monitor_interval_millis must be between 1 and 60000, not 0",
        ),
    ],
)
@pytest.mark.seed("DBP-09")
def test_impossible_settings(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            ProfilerConfig(
                framework_profile_params=FrameworkProfile(start_unix_time=NOW_S - 90, duration=1)
            ),
            "start_unix_time of DetailedProfilingConfig is 90 s in the past",
        ),
        (
            DebuggerHookConfig(collection_configs=[CollectionConfig("mine")]),
            "The collection 'mine' is none of .*; add include_regex to its parameters",
        ),
        (
            DebuggerHookConfig(
                collection_configs=[CollectionConfig("weights", {"save_interval": "often"})]
            ),
            "save_interval of the collection 'weights' is 'often', not a number of steps",
        ),
    ],
)
def test_settings_without_counterpart(setting: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        options(setting)
    with pytest.raises(UsageError, match="2 settings of ProfilerConfig; keep one of them"):
        options(ProfilerConfig(), ProfilerConfig())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "makes no ProfilerConfig, DebuggerHookConfig or Rule"),
        ("\nx = 1 / 0", "settings.py, line 2: ZeroDivisionError: division by zero."),
        ("x = = 1", "settings.py, line 1: SyntaxError"),
        ("import sagemaker.debugger", "leave out the estimator"),
        (None, "settings.py cannot be read: No such file or directory"),
    ],
)
def test_files_that_make_no_settings(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "settings.py"
    if text is not None:
        path.write_text(text)
    done = run_command(tmp_path, "run", "--config", str(path), "--out", "run", "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_other_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    path.write_text(
        textwrap.dedent("""
            from stepscope.compat.debugger import *
            profiler_config = ProfilerConfig(
                system_monitor_interval_millis=200,
                framework_profile_params=FrameworkProfile(start_step=5, num_steps=2),
            )
            same = profiler_config
        """)
    )
    assert len(read_settings(path)) == 1
    words = ["--config", str(path), "--interval", "1000", "--", "true"]
    values = run.make_context("run", words).params
    assert values["interval_ms"] == 1000
    (window,) = values["schedules"]
    assert (window.first_step, window.step_count) == (5, 2)
