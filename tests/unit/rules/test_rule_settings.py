"""Parameters from text, files and Python; unknown names; registration; failing rules."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import UsageError
from stepscope.rule_feed.check import choose_rules, describe_rules
from stepscope.rules import Evaluation, NotApplicable, Rule, RuleInputs, registry
from stepscope.rules.parameters import Count, format_parameters
from stepscope.rules.profiler import RULES
from stepscope.rules.profiler.bottleneck import CPUBottleneck
from stepscope.rules.profiler.gpu_utilization import LowGPUUtilization
from stepscope.rules.profiler.step_outlier import StepOutlier
from stepscope.rules.registry import (
    Registry,
    installed_rules,
    load_rule_file,
    read_assignments,
    read_configuration,
)
from stepscope.schema import Finding, RuleStatus
from tests.support.fake_rule_inputs import FakeRuleInputs

DEFAULTS = {
    "LowGPUUtilization": "threshold_p95:70\nthreshold_p5:10\nwindow:500\npatience:1000",
    "CPUBottleneck": "threshold:50\ngpu_threshold:10\npatience:1000\ncpu_threshold:90",
    "IOBottleneck": "threshold:50\ngpu_threshold:10\npatience:1000\nio_threshold:50",
    "BatchSize": "cpu_threshold_p95:70\ngpu_threshold_p95:70\ngpu_memory_threshold_p95:70\n"
    "patience:1000\nwindow:500",
    "GPUMemoryIncrease": "increase:5\npatience:1000\nwindow:10",
    "LoadBalancing": "threshold:0.2\npatience:1000",
    "Dataloader": "min_threshold:70\nmax_threshold:200",
    "StepOutlier": "stddev:3\nmode:None\nn_outliers:10",
    "MaxInitializationTime": "threshold:20",
    "OverallSystemUsage": "",
    "OverallFrameworkMetrics": "",
}
"""Parameters as Debugger's reports print them."""
OWN = '''
"""A custom rule."""
from dataclasses import dataclass
from stepscope.rules import Rule
from stepscope.rules.parameters import Count


@dataclass(frozen=True)
class Limits:
    max_nodes: Count = 3
    """Maximum number of nodes."""


class ManyNodes(Rule[Limits]):
    """Checks whether there are many nodes."""

    parameters_type = Limits

    def check(self, inputs):
        if len(inputs.nodes) > self.parameters.max_nodes:
            return self.finding(triggered=1, violations=len(inputs.nodes))
'''


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_debuggers_reports(name: str) -> None:
    assert format_parameters(Registry(RULES).get(name)().parameters) == DEFAULTS[name]


@pytest.mark.parametrize(
    ("text", "rule", "parameter", "value"),
    [
        ("LowGPUUtilization.window=250", "LowGPUUtilization", "window", 250),
        ("LowGPUUtilization_window=250", "LowGPUUtilization", "window", 250),
        ("lowgpuutilization_Threshold_P95=60.5", "LowGPUUtilization", "threshold_p95", 60.5),
        ("LowGPUUtilization.threshold=60", "LowGPUUtilization", "threshold_p95", 60),
        ("low_gpu_utilization_threshold=60", "LowGPUUtilization", "threshold_p95", 60),
        ("dataloader_bottleneck.threshold = 5", "DataloaderBottleneck", "threshold", 5),
        ("StepOutlier.mode=train", "StepOutlier", "mode", "TRAIN"),
        ("StepOutlier.mode=None", "StepOutlier", "mode", None),
        ("CPUBottleneck.gpu_threshold=0", "CPUBottleneck", "gpu_threshold", 0),
        ("ProfilerReport.LowGPUUtilization_window=250", "LowGPUUtilization", "window", 250),
        ("ProfilerReport_CPUBottleneck_threshold=70", "CPUBottleneck", "threshold", 70),
        ("profiler_report.StepOutlier_stddev=5", "StepOutlier", "stddev", 5),
    ],
)
def test_assignments(text: str, rule: str, parameter: str, value: object) -> None:
    (instance,) = choose_rules([rule], assignments=[text])
    assert instance.name == rule
    assert getattr(instance.parameters, parameter) == value


@pytest.mark.parametrize("name", ["ProfilerReport", "profiler_report"])
def test_profiler_report_stands_for_the_rules_of_debuggers_report(
    name: str, tmp_path: Path
) -> None:
    """With parameters of its rules, as its users pass them to Debugger."""
    config = tmp_path / "rules.toml"
    config.write_text(f'[{name}]\nLowGPUUtilization_threshold_p95 = "60"\n')
    rules = {rule.name: rule for rule in choose_rules([name, "RecompileStorm"], config=config)}
    assert set(rules) == {*DEFAULTS, "RecompileStorm"}
    assert rules["LowGPUUtilization"].parameters.threshold_p95 == 60
    assert [rule.rule for rule in describe_rules([name])] == list(rules)[:-1]


OTHER_VALUES = {"mode": "TRAIN"}
"""Values of parameters that are no numbers."""
EVERY_PARAMETER = [
    (rule, line.partition(":")[0]) for rule, lines in DEFAULTS.items() for line in lines.split()
]


@pytest.mark.parametrize(("rule", "parameter"), EVERY_PARAMETER)
@pytest.mark.parametrize(
    "form",
    [
        "ProfilerReport.{rule}_{parameter}={value}",
        "profilerreport_{rule}_{parameter}={value}",
        "ProfilerReport.{rule}_{upper}={value}",
    ],
)
def test_profiler_report_takes_every_parameter_of_its_rules(
    rule: str, parameter: str, form: str
) -> None:
    value = OTHER_VALUES.get(parameter, "1")
    text = form.format(rule=rule, parameter=parameter, upper=parameter.upper(), value=value)
    instances = choose_rules(["ProfilerReport"], assignments=[text])
    rules = {instance.name: instance.parameters for instance in instances}
    assert set(rules) == set(DEFAULTS)
    for name, parameters in rules.items():
        default = DEFAULTS[name]
        lines = format_parameters(parameters).split()
        expected = default.split()
        if name == rule:
            expected = [
                f"{parameter}:{value}" if line.startswith(f"{parameter}:") else line
                for line in expected
            ]
        assert lines == expected


@pytest.mark.parametrize("value", ["True", "false"])
def test_telemetry_can_be_declined_where_none_is_sent(value: str, tmp_path: Path) -> None:
    config = tmp_path / "rules.json"
    config.write_text(f'{{"ProfilerReport": {{"opt_out_telemetry": {value.lower()}}}}}')
    assignments = [f"ProfilerReport.opt_out_telemetry={value}"]
    rules = choose_rules(["ProfilerReport"], config=config, assignments=assignments)
    assert {rule.name: format_parameters(rule.parameters) for rule in rules} == DEFAULTS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ProfilerReport.opt_out_telemetry=perhaps",
            "for opt_out_telemetry. Expected: true or false",
        ),
        ("ProfilerReport.CPUBottleneck_scan_interval_us=60000000", "--scan-interval SECONDS"),
        ("LowGPUUtilization.window=0", "integer from 1"),
        ("LowGPUUtilization.patience=1.5", "integer from 1"),
        ("LowGPUUtilization.threshold_p95=101", "percentage"),
        ("LowGPUUtilization.threshold_p95=nan", "percentage"),
        ("LowGPUUtilization.threshold_p5=-1", "percentage"),
        ("LowGPUUtilization.window=many", "integer from 1"),
        ("MaxInitializationTime.threshold=inf", "above 0"),
        ("StepOutlier.mode=sideways", "TRAIN"),
        ("LowGPUUtilization.windows=1", "threshold_p95, threshold_p5, window, patience"),
        ("LowGPU.window=1", "CPUBottleneck, IOBottleneck"),
        ("OverallSystemUsage.window=1", "Parameters: none"),
        ("window=1", "Name.parameter=value"),
        ("LowGPUUtilization.window", "Name.parameter=value"),
        ("ProfilerReport.threshold=1", "Name.parameter=value"),
        ("ProfilerReport_BatchSize_patient=1", "patience"),
    ],
)
def test_invalid_settings(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_rules(assignments=[text])
    assert words in str(caught.value)


def test_assignments_override_the_configuration_file(tmp_path: Path) -> None:
    toml, json = tmp_path / "rules.toml", tmp_path / "rules.json"
    toml.write_text('[rules.LowGPUUtilization]\nwindow = 250\nthreshold_p95 = "60"\n')
    json.write_text('{"LowGPUUtilization": {"window": "250", "threshold_p95": 60}}')
    for config in (toml, json):
        (rule,) = choose_rules(
            ["LowGPUUtilization"], config=config, assignments=["LowGPUUtilization.window=100"]
        )
        assert (rule.parameters.window, rule.parameters.threshold_p95) == (100, 60)


@pytest.mark.seed("DBU-14")
@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.toml", "window = ", "is neither TOML nor, as .json, JSON"),
        ("a.json", "{", "is neither TOML nor, as .json, JSON"),
        ("a.json", "[]", "holds no table of parameters per rule"),
        ("a.json", '{"rules": 3}', "A rule configuration must be a table of parameters per rule"),
        ("a.toml", "LowGPUUtilization = 3", "must be a table of parameters"),
        ("a.toml", "[Nonsense]\nwindow = 3", "Nonsense"),
        ("a.toml", "[LowGPUUtilization]\nwindow = true", "Invalid value"),
    ],
)
def test_invalid_configuration(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    config = tmp_path / name
    config.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        choose_rules(config=config)
    with pytest.raises(UsageError, match="cannot be read"):
        choose_rules(config=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("rules.txt", "", "is not a Python file"),
        ("rules.py", "1 / 0", "Cannot run .*rules.py: ZeroDivisionError"),
        (
            "rules.py",
            "from stepscope.rules.profiler import StepOutlier as Mine",
            "; give yours another name",
        ),
    ],
)
def test_files_that_hold_no_rule(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=sentence):
        choose_rules(["StepOutlier", f"{tmp_path / name}:Mine"])


def test_configuration_is_never_executed() -> None:
    content = {"LowGPUUtilization": {"window": "__import__('os').getpid()"}}
    read = read_configuration(content, Registry(RULES))
    with pytest.raises(UsageError):
        LowGPUUtilization(**read["LowGPUUtilization"])
    assert read_assignments([], Registry(RULES)) == {}


def test_parameters_from_python() -> None:
    assert CPUBottleneck(cpu_threshold="80").parameters.cpu_threshold == 80
    assert StepOutlier(mode="data_wait").parameters.mode == "data_wait"
    with pytest.raises(UsageError, match="cpu_threshold"):
        CPUBottleneck(cores=3)


# --- registration ---------------------------------------------------------------------------------


def test_duplicate_names_are_rejected() -> None:
    rules = Registry(RULES)
    with pytest.raises(ValueError, match="CPUBottleneck"):
        rules.register(CPUBottleneck)


@pytest.mark.seed("DBT-09")
def test_custom_rule(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    (rule,) = choose_rules([f"{file}:ManyNodes"], assignments=["ManyNodes.max_nodes=1"])
    evaluation = Evaluation([rule])
    evaluation.feed(FakeRuleInputs().node("a"))
    assert evaluation.findings()[0].status is RuleStatus.NO_ISSUES_FOUND
    evaluation.feed(FakeRuleInputs().node("a").node("b"))
    (finding,) = evaluation.findings()
    assert (finding.status, finding.violations) == (RuleStatus.ISSUES_FOUND, 2)
    assert finding.rule_parameters == "max_nodes:1"
    (described,) = describe_rules([f"{file}:ManyNodes"])
    assert "Maximum number of nodes." in described.page


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (OWN, "mine.py:Other"),
        (OWN, "mine.py:Limits"),
        ("1 / 0", "mine.py:ManyNodes"),
        (OWN, "absent.py:ManyNodes"),
        (OWN.replace("ManyNodes", "CPUBottleneck"), "mine.py:CPUBottleneck"),
    ],
)
def test_file_without_the_rule(text: str, reference: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError):
        choose_rules([str(tmp_path / reference)])


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points = [
        EntryPoint("Fine", f"{__name__}:Fine", registry.GROUP),
        EntryPoint("Gone", "no.such.package:Gone", registry.GROUP),
        EntryPoint("Wrong", f"{__name__}:Limits", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entry_points)
    rules = installed_rules()
    assert rules.names[-3:] == ["Fine", "Gone", "Wrong"]
    evaluation = Evaluation([rule() for rule in list(rules)[-3:]])
    evaluation.feed(FakeRuleInputs().node("a"))
    statuses = [finding.status for finding in evaluation.findings()]
    assert statuses == [RuleStatus.NO_ISSUES_FOUND, RuleStatus.ERROR, RuleStatus.ERROR]
    assert "no.such.package" in str(load_errors(evaluation)[0]) or "No module" in str(
        load_errors(evaluation)[0]
    )


def load_errors(evaluation: Evaluation) -> list[str | None]:
    return [finding.error for finding in evaluation.findings() if finding.error]


@dataclass(frozen=True)
class Limits:
    max_nodes: Count = 1
    """Maximum."""


class Fine(Rule[Limits]):
    """Checks nothing."""

    def check(self, inputs: RuleInputs) -> Finding | None:
        return None


# --- failing rules --------------------------------------------------------------------------------


class Failing(Rule[Any]):
    """Fails."""

    def check(self, inputs: RuleInputs) -> Finding | None:
        raise RuntimeError("broken")


class Odd(Rule[Any]):
    """Returns something other than a finding."""

    def check(self, inputs: RuleInputs) -> Finding | None:
        return "yes"  # type: ignore[return-value]


class Waiting(Rule[Any]):
    """Has no inputs."""

    def check(self, inputs: RuleInputs) -> Finding | None:
        raise NotApplicable("no samples", 7)


class FailsInUpdate(CPUBottleneck):
    """Fails in `update`."""

    def update(self, state: Any, inputs: RuleInputs) -> Any:
        raise ZeroDivisionError("by zero")


@pytest.mark.seed("DBT-13")
def test_a_failing_rule_affects_no_other() -> None:
    evaluation = Evaluation([Failing(), FailsInUpdate(), Odd(), Waiting(), Fine()])
    for _ in range(2):
        evaluation.feed(FakeRuleInputs().node("a"))
        findings = {finding.rule: finding for finding in evaluation.findings()}
        assert findings["Failing"].error == "RuntimeError: broken"
        assert findings["FailsInUpdate"].error == "ZeroDivisionError: by zero"
        assert findings["Odd"].status is RuleStatus.ERROR
        assert findings["Waiting"].status is RuleStatus.NOT_APPLICABLE
        assert (findings["Waiting"].missing, findings["Waiting"].datapoints) == ("no samples", 7)
        assert findings["Fine"].status is RuleStatus.NO_ISSUES_FOUND


@pytest.mark.seed("DBT-13")
def test_statuses_of_running_and_stopped_evaluations() -> None:
    low = LowGPUUtilization(window=1, patience=1)
    evaluation = Evaluation([low, Fine(), Waiting()])
    assert evaluation.end_ns is None
    assert {f.status for f in evaluation.findings("running")} == {RuleStatus.IN_PROGRESS}
    inputs = FakeRuleInputs().sample("gpu_busy_ratio", [0.1, 0.1], device="0")
    evaluation.feed(inputs)
    assert evaluation.end_ns == inputs.end_ns
    running = [finding.status for finding in evaluation.findings("running")]
    assert running == [RuleStatus.ISSUES_FOUND, RuleStatus.IN_PROGRESS, RuleStatus.IN_PROGRESS]
    stopped = [finding.status for finding in evaluation.findings("stopped")]
    assert stopped == [RuleStatus.ISSUES_FOUND, RuleStatus.STOPPED, RuleStatus.NOT_APPLICABLE]


def test_a_file_does_not_replace_a_module(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text(OWN)
    assert load_rule_file(f"{file}:ManyNodes").__name__ == "ManyNodes"
    import json

    assert json.dumps([]) == "[]"
