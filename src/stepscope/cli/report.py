"""`stepscope report RUN -o FILE`: everything about a run in one file."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path

import click

from stepscope.cli.opening import open_run, resolve_run
from stepscope.cli.options import (
    config_option,
    find_report_form,
    json_option,
    rule_option,
    run_argument,
    scheduler_option,
    set_option,
)
from stepscope.cli.output import json_text, print_json
from stepscope.errors import UsageError
from stepscope.exporters import write_report_workbook
from stepscope.output_files import atomic_write
from stepscope.report import render_html, render_notebook, write_report_directory
from stepscope.run import choose_engine
from stepscope.views.profiling_report import (
    Report,
    ReportFacts,
    choose_report_rules,
    make_both_reports,
    make_report,
    make_report_facts,
)


@click.command(
    "report",
    help="Write a report on RUN: verdict, job, machines, framework and the findings of all rules. "
    "It can be written at any time while the job runs.",
)
@run_argument
@click.option(
    "-o",
    "--output",
    "output",
    metavar="FILE|DIR",
    type=click.Path(path_type=Path),
    help="report.html: one self-contained page. report.ipynb: the same as a notebook. "
    "report.json: the findings of the rules. report.xlsx: those and the views of the run, as a "
    "workbook of tables (extra `xlsx`). A directory, which has no suffix: page, notebook, and a "
    "JSON file per rule, as SageMaker Debugger writes them.",
)
@rule_option
@config_option()
@set_option("--config")
@scheduler_option()
@json_option("stepscope.views.profiling_report.ReportFacts")
def command(
    run: str,
    output: Path | None,
    names: tuple[str, ...],
    config: Path | None,
    assignments: tuple[str, ...],
    *,
    scheduler: str | None,
    as_json: bool,
) -> None:
    if output is None and not as_json:
        raise UsageError(
            "Pass a file for the report: -o report.html, .ipynb, .json or .xlsx, or a directory."
        )
    form = None if output is None else find_report_form(output)
    location = resolve_run(run)
    engine = click.get_current_context().with_resource(closing(choose_engine(scheduler)))
    signals = open_run(location, engine)
    rules = choose_report_rules(names, config=config, settings=assignments)

    @cache
    def facts() -> ReportFacts:
        return make_report_facts(signals, rules)

    def notebook(report: Report, directory: Path) -> bytes:
        return render_notebook(
            report, location, directory=directory, rules=names, config=config, settings=assignments
        )

    if output is not None and form == "":
        report, directory_facts = make_both_reports(signals, rules)
        write_report_directory(
            output,
            page=render_html(report),
            notebook=notebook(report, output),
            findings=directory_facts.rules,
        )
    elif output is not None:
        with atomic_write(output) as file:
            if form == ".html":
                file.write(render_html(make_report(signals, rules)).encode())
            elif form == ".ipynb":
                file.write(notebook(make_report(signals, rules), output.parent))
            elif form == ".xlsx":
                write_report_workbook(file, signals, facts())
            else:
                file.write(json_text(facts()).encode())
    if as_json:
        print_json(facts())
    else:
        click.echo(f"{output}: the report on {run}")
