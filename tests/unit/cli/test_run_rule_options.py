"""The options of `stepscope run` about rules: mistakes are found before the job starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.cli.rule_options import plan_rules
from stepscope.rules.profiler import RULES
from tests.support.command import run_command

DEFAULTS = {
    "names": (),
    "parameters": None,
    "assignments": (),
    "scan_interval": 60.0,
    "stop_on": (),
    "stop_grace": 30.0,
    "fail_on": (),
    "on_finding": (),
    "webhook": (),
    "notify": (),
    "report": None,
    "on_stuck": (),
    "no_rules": False,
}
OWN = "from stepscope.rules import Rule\nclass Mine(Rule):\n    '''Mine.'''\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rules", "StepOutlier,Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--rule", "absent.py:Mine"), "Specify a custom rule as path.py:MyRule"),
        (("--stop-on", "Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--fail-on", "Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--set", "StepOutlier.deviation=3"), "stddev, mode, n_outliers"),
        (("--rules-config", "absent.toml"), "absent.toml cannot be read"),
        (("--scan-interval", "0.5"), "0.5 is not in the range"),
        (("--webhook", "example.org/hook"), "does not start with http:// or https://"),
        (("--no-rules", "--stop-on", "StepOutlier"), "no-rules conflicts with other options"),
    ],
)
def test_refused_in_one_sentence(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    done = run_command(tmp_path, "run", "--out", "run", *options, "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    if "there are" in says:
        assert all(rule.__name__ in done.stderr for rule in RULES)
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_rules_are_known_by_their_names(tmp_path: Path) -> None:
    custom_rule = tmp_path / "own.py"
    custom_rule.write_text(OWN)
    requested = {
        "names": (f"{custom_rule}:Mine", "step_outlier"),
        "stop_on": ("Mine",),
        "fail_on": ("dataloader_bottleneck", f"{custom_rule}:Mine"),
    }
    plan = plan_rules(**{**DEFAULTS, **requested})  # type: ignore[arg-type]
    assert plan is not None
    assert plan.stop_on == ["Mine"]
    assert plan.fail_on == ["DataloaderBottleneck", "Mine"]


def test_secrets_stay_out_of_what_the_run_says() -> None:
    requested = {
        "on_finding": ("notify --token=abcdef123",),
        "webhook": ("https://u:p@hooks.example.org/services/T0/SECRET?key=abc",),
    }
    plan = plan_rules(**{**DEFAULTS, **requested})  # type: ignore[arg-type]
    assert plan is not None
    targets = [action.target for action in plan.actions]
    assert targets == ["notify --token=****", "https://hooks.example.org"]
    assert "SECRET" not in json.dumps(plan.recorded)


@pytest.mark.parametrize(("scan_s", "flush_s"), [(1, 1), (10, 2.5), (60, 5), (600, 5)])
def test_data_arrive_before_the_next_scan_ends(scan_s: float, flush_s: float) -> None:
    plan = plan_rules(**{**DEFAULTS, "scan_interval": scan_s})  # type: ignore[arg-type]
    assert plan is not None
    assert plan.flush_s == flush_s
