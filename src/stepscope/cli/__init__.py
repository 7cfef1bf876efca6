"""The command line.

Belongs here: options, wiring, text for people, exit codes. Does not belong here: numbers; they
come from `views` and `diagnosis`. This file only wires, and turns errors into exit codes.

    commands/   one file per command
    options/    options that several commands share
    job/        start of a job
    writers/    payloads as text
    help_texts  examples, and help on one screen
    opening     a run, or a trace file, by its path
    output      files that commands write, suggestions
    table_files tables of payloads as files
    completions completion of runs, rules and files in a shell
    startup     streams, defaults and threads of the process
    text        tables and quantities in a terminal
    stored_text output of a command that is printed again
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import sys
from typing import NamedTuple, NoReturn

import click

from stepscope import errors
from stepscope._version import __version__
from stepscope.cli.startup import one_thread_in_numpy, prepare_streams, set_defaults
from stepscope.cores import collect_seldom


class _Command(NamedTuple):
    module: str
    """Module in `commands`, imported when the command is used."""
    summary: str
    """Line of `stepscope --help`, which imports no command."""
    starts_jobs: bool = False
    """True if it starts processes of a user."""
    needs_linux: bool = False
    """True if it records, or talks to what records; the others read runs anywhere."""


COMMANDS = {
    "run": _Command(
        "run", "Launch a job under the profiler; show its bottleneck.", True, needs_linux=True
    ),
    "attach": _Command("attach", "Record a running job from outside.", needs_linux=True),
    "import": _Command("import_traces", "Import traces into a new run."),
    "export": _Command("export", "Write traces in the format of other tools."),
    "show": _Command("show", "Show one view of a run."),
    "sql": _Command("sql", "Run SQL over the tables and views of a run."),
    "diagnose": _Command("diagnose", "Show the bottleneck, its cause and fixes."),
    "what-if": _Command("what_if", "Simulate what fixes save."),
    "try": _Command("try_changes", "Measure what a fix saves.", True, needs_linux=True),
    "compare": _Command("compare", "Compare two runs, beyond noise."),
    "cost": _Command("cost", "Show the cost of a run and potential savings."),
    "fleet": _Command("fleet", "Show what many runs cost and waste."),
    "rules": _Command("rules", "Check a run against rules, list or explain rules."),
    "report": _Command("report", "Write a report on a run."),
    "watch": _Command("watch", "Follow a running job."),
    "ui": _Command("ui", "Show runs in a browser."),
    "mcp": _Command("mcp", "Serve runs to agents over MCP."),
    "capture": _Command("capture", "Record a detailed window of a running job.", needs_linux=True),
    "configure": _Command("configure", "Change settings of a running job.", needs_linux=True),
    "tag": _Command("tag", "Give a run a title, tags and notes."),
    "recover": _Command("recover", "Store the records of a run that was killed.", needs_linux=True),
    "doctor": _Command("doctor", "Check what can be captured on this machine.", needs_linux=True),
    "schema": _Command("schema", "Print the JSON schema of an output."),
    "completion": _Command("completion", "Print the completion script of a shell."),
}
"""Commands by name."""
HELP_FLAGS = ["-h", "--help", "--help-all"]


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"stepscope.cli.commands.{COMMANDS[cmd_name].module}"
        with one_thread_in_numpy():
            try:
                command: click.Command = importlib.import_module(name).command
            except ModuleNotFoundError:  # of the standard library, on Windows
                _check_system(cmd_name)
                raise
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let --json come before the name of the command, too."""
        if args[:1] == ["--json"] and args[1:2] and not args[1].startswith("-"):
            args = [args[1], "--json", *args[2:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=COMMANDS, ctx=ctx
            ) from None
        if command is not None and ctx.resilient_parsing:
            from stepscope.cli.completions import complete_by_metavar  # a shell asks for completion

            complete_by_metavar(command)
        elif name is not None and command is not None:
            if not set(HELP_FLAGS).isdisjoint(args):
                from stepscope.cli.help_texts import fit_help  # help needs it alone

                command = fit_help(name, command, args)
            else:
                _check_system(name)
            set_defaults(ctx, name, command, COMMANDS)
            if not COMMANDS[name].starts_jobs:
                ctx.with_resource(one_thread_in_numpy())
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": HELP_FLAGS})
@click.version_option(__version__, prog_name="stepscope")
def root() -> None:
    """Find the bottleneck of a training job, its cause, and what a fix would save."""


def _check_system(name: str) -> None:
    """Check that this system has what a command needs.

    Raises:
        UsageError: it records, and this is not Linux.
    """
    if COMMANDS[name].needs_linux and sys.platform != "linux":
        raise errors.UsageError(
            f"stepscope {name} needs Linux, as recording does. Runs that were recorded "
            "there can be read here: stepscope show RUN, stepscope ui."
        )


def _database_error() -> type[Exception] | tuple[()]:
    """Return the base class of DuckDB errors, or no class if DuckDB has not been imported.

    Importing it takes 0.1 s.
    """
    duckdb = sys.modules.get("duckdb")
    return duckdb.Error if duckdb else ()


def main() -> None:
    """Run the command line; errors become one sentence and an exit code.

    With --json the sentence is JSON as well, on standard error: standard output has a payload or
    nothing. When the reader of a pipe has closed it, click exits with 1, without a sentence.
    """
    prepare_streams()
    collect_seldom()
    atexit.register(gc.freeze)  # else the collector searches for 50 ms what the exit frees anyway
    try:
        code = root.main(standalone_mode=False, prog_name="stepscope")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        if _prints_json():
            _fail(error.format_message(), error.exit_code)
        error.show()
        sys.exit(error.exit_code)
    except errors.StepscopeError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        reason = error.strerror or str(error)
        prefix = f"{error.filename}: " if error.filename else ""
        _fail(f"{prefix}{reason}")
    except _database_error() as error:
        _fail(f"the run's tables cannot be read: {error}")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, exit_code: int = errors.StepscopeError.exit_code) -> NoReturn:
    if _prints_json():
        text = json.dumps({"error": message, "exit_code": exit_code}, ensure_ascii=False)
    else:
        text = f"stepscope: {message}"
    click.echo(text, err=True)
    sys.exit(exit_code)


def _prints_json() -> bool:
    """Check for --json among the words before those of a job's command, which may follow -- or the
    options of `run`."""
    words = sys.argv[1:]
    if words[:1] == ["--json"]:
        return True
    if "--" in words:
        words = words[: words.index("--")]
    elif words[:1] == ["run"]:
        words = words[: _count_options(root.get_command(click.Context(root), "run"), words)]
    return "--json" in words


def _count_options(command: click.Command | None, words: list[str]) -> int:
    """Count the words before the first one that is neither an option of a command nor its value."""
    flags = {
        flag
        for option in (() if command is None else command.params)
        if isinstance(option, click.Option) and option.is_flag
        for flag in (*option.opts, *option.secondary_opts)
    }
    position = 1
    while position < len(words) and words[position].startswith("-"):
        has_value = words[position] not in flags and "=" not in words[position]
        position += 1 + has_value
    return position
