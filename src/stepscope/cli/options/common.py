"""Options and arguments that several commands share, and the prices stored in a run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from decimal import InvalidOperation
from pathlib import Path
from typing import Any, Literal

import click

from stepscope import cost, errors, monitor, quantities
from stepscope.cli.output import say
from stepscope.quantities import memory
from stepscope.spool import MIN_LIMIT_BYTES

Decorated = Callable[..., Any]
JsonForm = Literal["one", "list", "one or list", "lines"]
DEFAULT_SCAN_S = 60.0
REPORT_FORMS = (".html", ".ipynb", ".json", ".xlsx")
FIRED = 3
"""Exit code of `rules check` when a rule fires, and of `run --fail-on`."""
MAX_AMOUNT = 1e9
"""Limit for hours and epochs."""


class JsonOption(click.Option):
    """`--json`, with the types of what it prints.

    Args:
        payloads: dotted names of the types, of which one is printed. `stepscope schema` imports
            them.
        form: `one` value, a `list` of them, `one or list`, or `lines` with one each.
        has_ids: True where rows have ids, for the option `--at` of show.
    """

    def __init__(
        self, *args: Any, payloads: Sequence[str], form: JsonForm, has_ids: bool, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.payloads = payloads
        self.form = form
        self.has_ids = has_ids


def json_option(*payloads: str, form: JsonForm = "one", has_ids: bool = False) -> Decorated:
    """Make `--json`, which prints a payload as JSON. Arguments as of `JsonOption`."""
    return click.option(
        "--json",
        "as_json",
        cls=JsonOption,
        payloads=payloads,
        form=form,
        has_ids=has_ids,
        is_flag=True,
        help="Print JSON.",
    )


def for_steps_option(command: Decorated) -> Decorated:
    """Add `--for-steps`: the length of the job that a run is a trial of."""
    return click.option(
        "--for-steps",
        type=click.IntRange(min=1),
        metavar="N",
        help="Judge the job as one of N steps, of which this run is a trial: what happens once, "
        "such as imports and preparation, weighs less.",
    )(command)


def run_argument(command: Decorated) -> Decorated:
    """Add the argument RUN: a run directory, the URL of a run in an object store, or, for commands
    that use `stepscope.cli.opening`, a trace."""
    return click.argument("run", metavar="RUN")(command)


def epochs_option(command: Decorated) -> Decorated:
    """Add `--epochs`, which projects the cost to a number of epochs."""
    return click.option(
        "--epochs",
        callback=parsed_by(parse_amount),
        metavar="N",
        help="Also show the cost of a run of N epochs.",
    )(command)


def parsed_by(parse: Callable[[Any], Any]) -> Callable[..., Any]:
    """Make the callback of an option of a function of its value; None stays None."""
    return lambda _context, _parameter, value: None if value is None else parse(value)


def split_names(values: Iterable[str]) -> tuple[str, ...]:
    """Split the values of an option that may be repeated and may contain several names.

    >>> split_names(["StepOutlier, BatchSize", "mine.py:Mine"])
    ('StepOutlier', 'BatchSize', 'mine.py:Mine')
    """
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def rule_option(command: Decorated) -> Decorated:
    """Add `--rule`, which selects rules."""
    return click.option(
        "--rule",
        "--rules",
        "names",
        multiple=True,
        callback=parsed_by(split_names),
        metavar="RULE,…",
        help="Rules to evaluate; path.py:MyRule for a custom rule; may be repeated.",
    )(command)


def config_option(flag: str = "--config", name: str = "config") -> Decorated:
    """Make the option for a file with parameters of rules.

    Args:
        flag: the option.
        name: the parameter of the command.
    """
    return click.option(
        flag,
        name,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TOML or JSON file with one table of parameters per rule.",
    )


def _load_settings(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is not None and not context.resilient_parsing:
        from stepscope.cli.options.debugger import load_settings  # few jobs have such a file

        values = load_settings(context.command, path)
        context.default_map = {**(context.default_map or {}), **values}


settings_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_load_settings,
    metavar="FILE",
    help="Python file with settings of SageMaker Debugger, made by stepscope.compat.debugger. "
    "Other options override them.",
)


def set_option(config: str) -> Decorated:
    """Make `--set`, which overrides single parameters of the file of the option `config`."""
    return click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME.PARAM=VALUE",
        help=f"Set a parameter of a rule; overrides {config}; may be repeated.",
    )


def scheduler_option() -> Decorated:
    """Make `--scheduler`."""
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Read the ranks of RUN on the workers of this Dask scheduler, e.g. "
        "tcp://10.0.0.1:8786 (extra `dask`). They open RUN themselves, at the same path or URL. "
        "Default: processes on this machine.",
    )


def scan_option(text: str) -> Decorated:
    """Make `--scan-interval` with a help text."""
    return click.option(
        "--scan-interval",
        type=click.FloatRange(min=1),
        default=DEFAULT_SCAN_S,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def find_report_form(output: Path) -> str:
    """Return the form of a report: the suffix of its file, '' for a directory.

    Raises:
        UsageError: the file cannot be written, or its suffix is not one of `REPORT_FORMS`.
    """
    form = "" if output.is_dir() else output.suffix.lower()
    if form and form not in REPORT_FORMS:
        raise errors.UsageError(
            f"{output} has no known format; use a name that ends in {', '.join(REPORT_FORMS)}, or "
            "a directory."
        )
    if not form and output.exists() and not output.is_dir():
        raise errors.UsageError(f"{output} is not a directory; use another name.")
    if not output.parent.is_dir():
        raise errors.UsageError(
            f"{output.parent} is not a directory; create it or use another path."
        )
    return form


def check_report_path(output: Path) -> Path:
    """Refuse a path that no report can be written to."""
    find_report_form(output)
    return output


def parse_size(text: str) -> int:
    """Parse a size in bytes, such as 256MB, 1GiB or 4194304.

    Raises:
        click.BadParameter: it is not one.

    >>> parse_size("2MiB")
    2097152
    """
    units = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
    units |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
    number = text.rstrip("bBkKmMgGiI ")
    unit = text[len(number) :].strip().lower()
    if unit not in units or not number.replace(".", "", 1).isdigit():
        raise click.BadParameter(f"{text!r} is not a size, e.g. 256MB or 1GiB.")
    return int(float(number) * units[unit])


def parse_spool_limit(text: str) -> int:
    """Parse a size that has room for the span logs of a process.

    >>> parse_spool_limit("2MiB")
    2097152
    """
    limit_bytes = parse_size(text)
    if limit_bytes < MIN_LIMIT_BYTES:
        raise click.BadParameter(
            f"{text} is too small for span logs, which need at least {memory(MIN_LIMIT_BYTES)}."
        )
    return limit_bytes


def parse_run_size(text: str) -> int:
    """Parse a size that has room for the newest files of a run.

    >>> parse_run_size("1GB")
    1000000000
    """
    from stepscope.monitor import MIN_RUN_BYTES

    size_bytes = parse_size(text)
    if size_bytes < MIN_RUN_BYTES:
        raise click.BadParameter(
            f"{text} is too small for a run, whose newest files are kept in full detail; use at "
            f"least {memory(MIN_RUN_BYTES)}."
        )
    return size_bytes


def parse_amount(text: str) -> float:
    """Parse a number above 0.

    `click.FloatRange` accepts NaN, because it compares as neither below nor above a bound.

    >>> parse_amount("2.5")
    2.5
    """
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= MAX_AMOUNT:
        raise click.BadParameter(
            f"{text!r} is not a number above 0 and at most {quantities.count(MAX_AMOUNT)}."
        )
    return amount


def parse_price(text: str) -> str:
    """Check a price and return its decimal digits, so that no cent is lost to rounding.

    >>> parse_price("31.212")
    '31.212'
    """
    from stepscope.cost import parse_usd_per_hour

    try:
        return str(parse_usd_per_hour(text))
    except (ValueError, InvalidOperation):
        raise click.BadParameter(
            f"{text!r} is not a price in dollars per hour, e.g. 3.06 (at most a million)."
        ) from None


def price_options(command: Decorated) -> Decorated:
    """Add `--usd-per-hour`, `--instance-type` and `--prices`."""
    for option in (
        click.option(
            "--prices",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="TOML file with custom prices; overrides list prices. Default: $STEPSCOPE_PRICES.",
        ),
        click.option(
            "--instance-type",
            metavar="NAME",
            help="Cloud instance type, e.g. p4d.24xlarge; used to look up the hourly price.",
        ),
        click.option(
            "--usd-per-hour",
            callback=parsed_by(parse_price),
            metavar="PRICE",
            help="Price of one machine per hour; used for the cost of the job and savings.",
        ),
    ):
        command = option(command)
    return command


def recorded_prices(
    usd_per_hour: str | None, instance_type: str | None, prices: Path | None
) -> dict[str, str | None]:
    """Return the price options to store in a run.

    A custom price is stored by value, because its file is not available on other machines.

    Raises:
        UsageError: the user's prices cannot be read.
    """
    options = {"usd_per_hour": usd_per_hour, "instance_type": instance_type, "price_source": None}
    has_price_table = prices is not None or bool(os.environ.get(cost.ENVIRONMENT))
    if usd_per_hour is not None or not (has_price_table or instance_type):
        return options
    table = cost.load_price_table(prices)
    kind = instance_type or monitor.read_instance_type()
    offer = table.find(kind) if kind is not None else None
    if offer is not None and offer.is_custom:
        options |= {"usd_per_hour": str(offer.usd_per_hour), "price_source": offer.origin}
    elif offer is None:
        say(cost.NO_PRICE if kind is None else cost.explain_missing_offer(kind, table))
    return options
