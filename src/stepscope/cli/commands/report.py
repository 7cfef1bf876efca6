"""`stepscope report RUN -o FILE`: everything about a run in one file."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path

import click

from stepscope import errors, exporters, output_files
from stepscope.cli.opening import open_run, resolve_run
from stepscope.cli.options import common
from stepscope.cli.output import json_text, print_rows
from stepscope.report import render_html, render_notebook, write_report_directory
from stepscope.run import choose_engine
from stepscope.views import profiling_report


@click.command(
    "report",
    help="Write a report on RUN: verdict, job, machines, framework and the findings of all rules. "
    "It can be written at any time while the job runs.",
)
@common.run_argument
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
@common.rule_option
@common.config_option()
@common.set_option("--config")
@common.scheduler_option()
@common.json_option("stepscope.views.profiling_report.ReportFacts", has_ids=True)
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
        raise errors.UsageError(
            "Pass a file for the report: -o report.html, .ipynb, .json or .xlsx, or a directory."
        )
    form = None if output is None else common.find_report_form(output)
    location = resolve_run(run)
    engine = click.get_current_context().with_resource(closing(choose_engine(scheduler)))
    signals = open_run(location, engine)
    rules = profiling_report.choose_report_rules(names, config=config, settings=assignments)

    @cache
    def facts() -> profiling_report.ReportFacts:
        return profiling_report.make_report_facts(signals, rules)

    def notebook(report: profiling_report.Report, directory: Path) -> bytes:
        return render_notebook(
            report, location, directory=directory, rules=names, config=config, settings=assignments
        )

    if output is not None and form == "":
        report, directory_facts = profiling_report.make_both_reports(signals, rules)
        write_report_directory(
            output,
            page=render_html(report),
            notebook=notebook(report, output),
            findings=directory_facts.rules,
        )
    elif output is not None:
        with output_files.atomic_write(output) as file:
            if form == ".html":
                file.write(render_html(profiling_report.make_report(signals, rules)).encode())
            elif form == ".ipynb":
                file.write(notebook(profiling_report.make_report(signals, rules), output.parent))
            elif form == ".xlsx":
                exporters.write_report_workbook(file, signals, facts())
            else:
                file.write(json_text(facts()).encode())
    if as_json:
        has_ids = config is None and not assignments and not names
        print_rows(facts(), "report", has_ids=has_ids)
    else:
        click.echo(f"{output}: the report on {run}")
