"""Options of `stepscope run` for rules: selection, interval, and actions on findings."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from stepscope import errors, masking, monitor, schema
from stepscope.cli.job.launcher import STOP_GRACE_S, deferring_signals
from stepscope.cli.options import common
from stepscope.cli.startup import one_thread_in_numpy
from stepscope.watch import ActionConfig, ExportConfig

STOP = "stop"
"""Value of `--on-stuck` that stops the job."""


class RulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Rules to evaluate while a job runs, and the actions on their findings."""

    scan_s: float = common.DEFAULT_SCAN_S
    rules: list[str] = []
    """As the user names them; empty for all."""
    parameters: str | None = None
    assignments: list[str] = []
    stop_on: list[str] = []
    """Names of rules, resolved from here on."""
    stop_grace_s: float = STOP_GRACE_S
    fail_on: list[str] = []
    also: list[str] = []
    """Rules to evaluate in addition to `rules`, as the user names them."""
    actions: list[ActionConfig] = []
    """All actions except stopping the job."""
    on_stuck_stop: bool = False
    """Stop the job when it is stuck."""
    report: str | None = None
    """File of the report that is written while the job runs and at its end."""
    exports: list[ExportConfig] = []
    """Places that are sent the figures of the job while it runs and at its end."""
    takes_census: bool = True
    """Take a census of the processes whose memory grows for certain."""

    @property
    def flush_s(self) -> float:
        """Interval at which the monitor stores records: short enough that the data of a scan arrive
        before the next one ends."""
        return min(monitor.DEFAULT_FLUSH_S, max(1.0, self.scan_s / 4))

    @property
    def selection(self) -> schema.RuleSelection:
        """Rules at the start of the job."""
        return schema.RuleSelection(
            names=self.rules, config=self.parameters, assignments=self.assignments
        )

    @property
    def recorded(self) -> dict[str, Any]:
        """Options to store in the run: enough to evaluate the same rules again."""
        return {
            "scan_interval_s": self.scan_s,
            "names": [*self.rules, *self.also] if self.rules else [],
            "config": self.parameters,
            "set": self.assignments,
            "stop_on": self.stop_on,
            "fail_on": self.fail_on,
        }


def rule_options(command: common.Decorated) -> common.Decorated:
    """Add the rule options; the command gets a `RulePlan` as `rules`, None with `--no-rules`."""

    @functools.wraps(command)
    def with_plan(*args: Any, **options: Any) -> Any:
        names = inspect.signature(plan_rules).parameters
        plan = plan_rules(**{name: options.pop(name) for name in names})
        return command(*args, rules=plan, **options)

    collected: common.Decorated = with_plan
    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected


@one_thread_in_numpy()
@deferring_signals()
def plan_rules(
    *,
    names: tuple[str, ...],
    parameters: Path | None,
    assignments: tuple[str, ...],
    scan_interval: float,
    stop_on: tuple[str, ...],
    stop_grace: float,
    fail_on: tuple[str, ...],
    on_finding: tuple[str, ...],
    webhook: tuple[str, ...],
    notify: tuple[str, ...],
    on_stuck: tuple[str, ...],
    report: Path | None,
    to: tuple[str, ...],
    census: bool,
    no_rules: bool,
) -> RulePlan | None:
    """Build the plan from the options.

    Raises:
        UsageError: a rule, parameter, URL or library that does not exist, or a contradiction.
    """
    requested = [*names, *assignments, *stop_on, *fail_on, *on_finding, *webhook, *notify]
    if no_rules:
        if requested or on_stuck or to or parameters is not None or report is not None:
            raise errors.UsageError(
                "--no-rules conflicts with other options for rules; remove one of them."
            )
        return None
    plan = RulePlan(
        scan_s=scan_interval,
        rules=list(names),
        parameters=None if parameters is None else str(parameters.absolute()),
        assignments=list(assignments),
        also=[*stop_on, *fail_on],
        stop_grace_s=stop_grace,
        actions=[
            *(_command(value) for value in on_finding),
            *(_webhook(value) for value in webhook),
            *(_notification(value) for value in notify),
            *(_on_stuck(value) for value in on_stuck if value != STOP),
        ],
        on_stuck_stop=STOP in on_stuck,
        report=None if report is None else str(report.absolute()),
        exports=[_export(value) for value in to],
        takes_census=census,
    )
    if not requested and parameters is None:
        return plan  # nothing to check; importing the rules would delay the job
    return _with_checked_rules(plan, stop_on, fail_on)


def _with_checked_rules(
    plan: RulePlan, stop_on: tuple[str, ...], fail_on: tuple[str, ...]
) -> RulePlan:
    from stepscope.rule_feed import choose_rules, rule_names

    parameters = None if plan.parameters is None else Path(plan.parameters)
    choose_rules(
        plan.rules, also=plan.also, config=parameters, assignments=plan.assignments
    )  # finds mistakes before the job starts
    return msgspec.structs.replace(
        plan,
        stop_on=rule_names(stop_on, among=plan.rules),
        fail_on=rule_names(fail_on, among=plan.rules),
    )


def _command(command: str) -> ActionConfig:
    return ActionConfig(kind="command", address=command, target=masking.mask_text(command))


def _webhook(url: str, option: str = "--webhook") -> ActionConfig:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise errors.UsageError(
            f"Invalid value for {option}: {masking.mask_text(url)!r} does not start with http:// or https://."
        )
    # The rest of such a URL is often the secret.
    return ActionConfig(kind="webhook", address=url, target=f"{parts.scheme}://{parts.hostname}")


def _on_stuck(value: str) -> ActionConfig:
    is_url = value.startswith(("http://", "https://"))
    action = _webhook(value, "--on-stuck") if is_url else _command(value)
    return msgspec.structs.replace(action, rules=[schema.STUCK_ALERT])


def _notification(url: str) -> ActionConfig:
    from stepscope.watch import make_notifier

    make_notifier(url)
    return ActionConfig(kind="notify", address=url, target=url.partition(":")[0])


def _export(value: str) -> ExportConfig:
    from stepscope.exporters import choose_live_output

    name, _, output = value.partition("=")
    return ExportConfig(format=name, output=choose_live_output(name, output or None))


_OPTIONS = (
    common.rule_option,
    common.config_option("--rules-config", "parameters"),
    common.set_option("--rules-config"),
    common.scan_option("Interval of rule evaluation while the job runs."),
    click.option(
        "--stop-on",
        multiple=True,
        callback=common.parsed_by(common.split_names),
        metavar="RULE,…",
        help="Stop the job when one of these rules fires: SIGTERM, then SIGKILL.",
    ),
    click.option(
        "--stop-grace",
        type=click.FloatRange(min=0),
        default=STOP_GRACE_S,
        show_default=True,
        metavar="SECONDS",
        help="Time between SIGTERM and SIGKILL when a rule stops the job.",
    ),
    click.option(
        "--fail-on",
        multiple=True,
        callback=common.parsed_by(common.split_names),
        metavar="RULE,…",
        help="Exit with 3 if one of these rules fired and CMD exited with 0.",
    ),
    click.option(
        "--on-finding",
        multiple=True,
        metavar="CMD",
        help="Run a shell command when a rule fires, with the finding as JSON on stdin.",
    ),
    click.option(
        "--webhook",
        multiple=True,
        metavar="URL",
        help="POST the finding as JSON when a rule fires.",
    ),
    click.option(
        "--notify",
        multiple=True,
        metavar="URL",
        help="Send an e-mail or chat message when a rule fires; an apprise URL (extra 'alerts').",
    ),
    click.option(
        "--on-stuck",
        multiple=True,
        metavar="stop|CMD|URL",
        help="When the job is stuck (see --stuck-after): stop it, run a shell command with the "
        "account as JSON on stdin, or POST it to a URL.",
    ),
    click.option(
        "--report",
        type=click.Path(path_type=Path),
        metavar="FILE|DIR",
        callback=common.parsed_by(common.check_report_path),
        help="Write the report (.html, .ipynb, .json, .xlsx, or a directory of page, notebook and "
        "a JSON file per rule) at the end of the job, and while it runs as often as that takes 1% "
        "of the time.",
    ),
    click.option(
        "--to",
        multiple=True,
        metavar="FORMAT[=WHERE]",
        help="Send verdict, shares, times and cost to otlp[=URL], mlflow[=URI[#EXPERIMENT]], "
        "wandb[=[ENTITY/]PROJECT], prometheus=FILE or summary=FILE at the end of the job, and "
        "while it runs as often as that takes 1% of the time.",
    ),
    click.option(
        "--census/--no-census",
        default=True,
        help="When host memory grows for certain, look once at what holds it: two pauses of at "
        "most 0.5 s in each process that grows.",
    ),
    click.option("--no-rules", is_flag=True, help="Do not evaluate rules while the job runs."),
)
