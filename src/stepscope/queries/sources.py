"""Payloads that ids begin with, and the commands that print them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import msgspec

from stepscope import comparison, cost, errors, rule_feed, views
from stepscope.queries.ids import make_id
from stepscope.queries.sql import QueryLimits, query_rows
from stepscope.run import Run
from stepscope.views import profiling_report

OpenBase = Callable[[str], Run]
"""Opens the run that `compare?base=RUN` names."""
Options = Mapping[str, str]
LIST_SEPARATOR = ","
"""Between the values of an option that may be repeated."""
_REPEATED = ("fail_if",)
_SWITCHES = ("strict",)
MAX_AMOUNT = 1e9


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that is no view."""

    command: str
    """Command that prints it; words in capital letters are RUN or required options."""
    options: tuple[str, ...] = ()
    """Options of the command, without those in `command`."""
    make: Callable[[Run, Options, OpenBase], msgspec.Struct]

    @property
    def needs(self) -> list[str]:
        """Required options."""
        words = self.command.split()
        return [word.lower() for word in words if word.isupper() and word != "RUN"]


def make_payload(run: Run, source: str, options: Options, open_base: OpenBase) -> msgspec.Struct:
    """Make the payload that an id begins with.

    Raises:
        UsageError: there is no such source or option.
    """
    if source in views.VIEWS:
        view = views.VIEWS[source]
        return view(run, view.parse_options(source, options))
    entry = SOURCES.get(source)
    if (
        entry is not None
        and set(entry.needs) <= options.keys() <= {*entry.needs, *entry.options}
        and all(options[field] for field in entry.needs)
    ):
        return entry.make(run, options, open_base)
    forms = [
        make_id(name) + "".join(f"?{need}=…" for need in s.needs) for name, s in SOURCES.items()
    ]
    raise errors.UsageError(
        f"An id does not begin with {make_id(source, options)!r}. It begins with "
        f"{', '.join(forms)}, or the name of a view."
    )


def command_of(source: str, options: Options) -> str:
    """Return the command that prints a payload."""
    if source in views.VIEWS:
        words = ["show", "RUN", source]
        for field, text in options.items():
            is_plain = field.endswith("_ns") and text.isdecimal()
            words += [views.OPTION_FLAGS[field], f"{text}ns" if is_plain else text]
        return shlex.join(["stepscope", *words, "--json"])
    entry = SOURCES[source]
    words = [
        options[word.lower()] if word.lower() in entry.needs else word
        for word in entry.command.split()
    ]
    for field in entry.options:
        if field not in options:
            continue
        texts = options[field].split(LIST_SEPARATOR) if field in _REPEATED else [options[field]]
        flag = f"--{field.replace('_', '-')}"
        words += [flag] if field in _SWITCHES else [word for text in texts for word in (flag, text)]
    return shlex.join(["stepscope", *words, "--json"])


def _make_verdict(run: Run, options: Options, _open_base: OpenBase) -> msgspec.Struct:
    step_count = _parse(options, "for_steps")
    return rule_feed.make_verdict(
        run, planned_step_count=None if step_count is None else int(step_count)
    )


def _check_rules(run: Run, options: Options, _open_base: OpenBase) -> msgspec.Struct:
    names = [name for name in options.get("rule", "").split(LIST_SEPARATOR) if name]
    registered = {rule.rule for rule in rule_feed.describe_rules()}
    if missing := [name for name in names if name not in registered]:  # a file would be run
        raise errors.UsageError(f"There is no rule {missing[0]!r}.")
    report = rule_feed.check_rules(run.reader, rule_feed.choose_rules(names))
    return msgspec.structs.replace(report, findings=rule_feed.refuse_advice(report.findings, run))


def _compare(run: Run, options: Options, open_base: OpenBase) -> msgspec.Struct:
    runs = [open_base(options["base"]), run]
    request = _price_request(options)
    if request != cost.PriceRequest():
        for one in runs:
            one.reader.info = cost.apply_price(
                one.reader.info, one.reader.nodes().values(), request
            )
    texts = {
        field: [text for text in options.get(field, "").split(LIST_SEPARATOR) if text]
        for field in ("fail_if", "allow_different")
    }
    return comparison.compare_runs(
        [runs[0]],
        [runs[1]],
        epochs=_parse(options, "epochs"),
        conditions=[comparison.parse_condition(text) for text in texts["fail_if"]],
        allowed=comparison.parse_allowed_groups(texts["allow_different"]),
        strict="strict" in options,
    )


def _report_cost(run: Run, options: Options, _open_base: OpenBase) -> msgspec.Struct:
    return cost.report_cost(
        run,
        _price_request(options),
        epochs=_parse(options, "epochs"),
        hours=_parse(options, "hours"),
    )


def _make_report(run: Run, _options: Options, _open_base: OpenBase) -> msgspec.Struct:
    return profiling_report.make_report_facts(run, profiling_report.choose_report_rules(()))


def _query(run: Run, options: Options, _open_base: OpenBase) -> msgspec.Struct:
    return query_rows(run, options["query"], QueryLimits())


def _price_request(options: Options) -> cost.PriceRequest:
    return cost.PriceRequest(
        usd_per_hour=options.get("usd_per_hour"), instance_type=options.get("instance_type")
    )


def _parse(options: Options, field: str) -> float | None:
    """Parse an amount above 0; None without one."""
    if field not in options:
        return None
    try:
        amount = float(options[field])
    except ValueError:
        amount = 0.0
    if not 0 < amount <= MAX_AMOUNT:
        raise errors.UsageError(f"{field}={options[field]} is not a number above 0.")
    return amount


_PRICES = ("usd_per_hour", "instance_type")
SOURCES = {
    "verdict": _Source(command="diagnose RUN", options=("for_steps",), make=_make_verdict),
    "rules": _Source(command="rules check RUN", options=("rule",), make=_check_rules),
    "compare": _Source(
        command="compare BASE RUN",
        options=("fail_if", "strict", "allow_different", *_PRICES, "epochs"),
        make=_compare,
    ),
    "cost": _Source(command="cost RUN", options=(*_PRICES, "epochs", "hours"), make=_report_cost),
    "report": _Source(command="report RUN", make=_make_report),
    "sql": _Source(command="sql RUN QUERY", make=_query),
}
"""By the start of their ids."""
