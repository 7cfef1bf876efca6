"""`stepscope rules`: list and explain rules, and evaluate them on a run."""

from __future__ import annotations

from pathlib import Path

import click

from stepscope.cli.options import common
from stepscope.cli.output import print_json, print_rows
from stepscope.cli.text import console


@click.group("rules", help="Check a run against rules, list or explain rules.")
def command() -> None:
    pass


@command.command("list", help="List all rules with a summary.")
@common.json_option("stepscope.rule_feed.check.RuleDescription", form="list")
def list_rules(as_json: bool) -> None:
    from stepscope.rule_feed import describe_rules

    rules = describe_rules()
    if as_json:
        print_json(rules)
        return
    width = max(len(rule.rule) for rule in rules)
    for rule in rules:
        click.echo(f"{rule.rule:{width}}  {rule.summary}")


@command.command("explain", help="Show the documentation of RULE.")
@click.argument("rule", metavar="RULE")
@common.json_option("stepscope.rule_feed.check.RuleDescription", form="one or list")
def explain(rule: str, as_json: bool) -> None:
    from stepscope.rule_feed import describe_rules

    descriptions = describe_rules([rule])
    if as_json:
        print_json(descriptions if len(descriptions) > 1 else descriptions[0])
    else:
        click.echo("\n".join(description.page for description in descriptions), nl=False)


@command.command("check", help="Evaluate rules on RUN; the exit status is 3 when one fires.")
@common.run_argument
@common.rule_option
@common.config_option()
@common.set_option("--config")
@common.json_option("stepscope.rule_feed.RuleReport", has_ids=True)
def check(
    run: str,
    names: tuple[str, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> int:
    import msgspec

    from stepscope.cli.opening import open_run, say_recovery
    from stepscope.rule_feed import check_rules, choose_rules, refuse_advice

    rules = choose_rules(names, config=config, assignments=assignments)
    opened = open_run(run)
    say_recovery(opened.reader)
    report = check_rules(opened.reader, rules)
    report = msgspec.structs.replace(report, findings=refuse_advice(report.findings, opened))
    if as_json:
        # An id names neither parameters nor files of rules.
        has_ids = config is None and not assignments and not any(":" in name for name in names)
        print_rows(report, "rules", {"rule": names}, has_ids=has_ids)
    else:
        from stepscope.cli.writers.findings import write_report

        write_report(console(run), report)
    return common.FIRED if report.fired else 0
