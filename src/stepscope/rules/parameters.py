"""Parameters of rules: accepted values, conversion from text, and values in sentences beside a
threshold, with enough digits to show their side of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from stepscope import errors, quantities, schema

MAX_HANDOVER_NS = 3_000_000
"""Time for handing over a small batch beside a busy training thread: 1 to 3 ms were measured, where
the worker and the training thread are woken up for each batch."""

MAX_DECIMALS = 9
"""A smaller difference from the threshold is rounding of the value."""


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers that a parameter accepts."""

    description: str
    is_integer: bool = False
    above: float = -math.inf
    """Exclusive lower bound."""
    minimum: float = -math.inf
    maximum: float = math.inf

    def read(self, value: object) -> float | int:
        """Convert a value; ValueError if it is not accepted."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not (self.above < number and self.minimum <= number <= self.maximum):
            raise ValueError
        if self.is_integer:
            if number != int(number):
                raise ValueError
            return int(number)
        return number


@dataclass(frozen=True, slots=True)
class Choice:
    """Words that a parameter accepts, in any case; None for no choice."""

    options: tuple[str, ...]

    @property
    def description(self) -> str:
        """List of the options."""
        return "None or one of " + ", ".join(self.options)

    def read(self, value: object) -> str | None:
        """Convert a value to an option; ValueError if it is not accepted."""
        if value is None or str(value).lower() in {"none", ""}:
            return None
        for option in self.options:
            if option.lower() == str(value).lower():
                return option
        raise ValueError


class OptionalNumber(msgspec.Struct, frozen=True):
    """Number that a parameter accepts; None for no limit."""

    description: str = "number or None"

    def read(self, value: object) -> float | None:
        """Convert a value; ValueError if it is not accepted."""
        if value is None or str(value).lower() in {"none", ""}:
            return None
        return float(Number(description="").read(value))


class Boolean(msgspec.Struct, frozen=True):
    """True or false, as text in any case too."""

    description: str = "true or false"

    def read(self, value: object) -> bool:
        """Convert a value; ValueError if it is not accepted."""
        if str(value).lower() not in {"true", "false"}:
            raise ValueError
        return str(value).lower() == "true"


class Words(msgspec.Struct, frozen=True):
    """Text that a parameter accepts; None for no text."""

    description: str
    is_regex: bool = False

    def read(self, value: object) -> str | None:
        """Convert a value to text; ValueError for an invalid regular expression."""
        if value is None or str(value).lower() in {"none", ""}:
            return None
        if self.is_regex:
            try:
                re.compile(str(value))
            except re.error as error:
                raise ValueError from error
        return str(value)


AcceptedValues = Number | OptionalNumber | Boolean | Choice | Words
Text = Annotated[str | None, Words("text or None")]
Regex = Annotated[str | None, Words("regular expression or None", is_regex=True)]
Percentage = Annotated[
    float, Number(description="percentage from 0 to 100", minimum=0, maximum=100)
]
Positive = Annotated[float, Number(description="finite number above 0", above=0, maximum=1e300)]
NotNegative = Annotated[float, Number(description="finite number from 0", minimum=0, maximum=1e300)]
Ratio = Annotated[float, Number(description="number from 0 to 1", minimum=0, maximum=1)]
Count = Annotated[
    int, Number(description="integer from 1", is_integer=True, minimum=1, maximum=1e15)
]


Limit = Annotated[float | None, OptionalNumber()]
Switch = Annotated[bool, Boolean()]


@dataclass(frozen=True, slots=True)
class NoParameters:
    """Parameters of a rule that has none."""


class DeclaredParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a rule as its page shows it."""

    name: str
    default: Any
    accepts: str
    doc: str


def describe_parameters(parameters_type: type) -> list[DeclaredParameter]:
    """Return the parameters that a dataclass declares, with the docstrings of its fields."""
    accepted, docs = _accepted_values(parameters_type), schema.describe_fields(parameters_type)
    return [
        DeclaredParameter(
            name=field.name,
            default=field.default,
            accepts=accepted[field.name].description if field.name in accepted else "any value",
            doc=docs.get(field.name, ""),
        )
        for field in fields(parameters_type)
    ]


def make_parameters(
    parameters_type: type, values: Mapping[str, object], *, rule: str, aliases: Mapping[str, str]
) -> Any:
    """Create an instance of a parameters dataclass.

    Args:
        parameters_type: the dataclass.
        values: values or text by name, in any case.
        rule: name of the rule, for errors.
        aliases: alternative names of parameters.

    Raises:
        UsageError: an undeclared name, or a value that the parameter does not accept.
    """
    names = {field.name.lower(): field.name for field in fields(parameters_type)}
    names |= {alias.lower(): name for alias, name in aliases.items()}
    accepted = _accepted_values(parameters_type)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name.lower() == "scan_interval_us":
            raise errors.UsageError(
                f"{rule} has no scan_interval_us: all rules have one, --scan-interval SECONDS."
            )
        if name.lower() not in names:
            valid = ", ".join(field.name for field in fields(parameters_type)) or "none"
            raise errors.UsageError(f"{rule} has no parameter {name!r}. Parameters: {valid}.")
        field_name = names[name.lower()]
        arguments[field_name] = _read_value(accepted, field_name, value, rule)
    return parameters_type(**arguments)


def format_parameters(parameters: Any) -> str:
    """Format parameters as one `name:value` per line.

    >>> format_parameters(NoParameters())
    ''
    """
    values = ((field.name, getattr(parameters, field.name)) for field in fields(parameters))
    return "\n".join(f"{name}:{_format_value(value)}" for name, value in values)


def _format_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read_value(accepted: Mapping[str, AcceptedValues], name: str, value: object, rule: str) -> Any:
    if name not in accepted:
        return value
    try:
        return accepted[name].read(value)
    except (ValueError, OverflowError):
        raise errors.UsageError(
            f"Invalid value {value!r} for {rule}.{name}. Expected: {accepted[name].description}."
        ) from None


def _accepted_values(parameters_type: type) -> dict[str, AcceptedValues]:
    hints = get_type_hints(parameters_type, include_extras=True)
    return {
        name: annotation
        for name, hint in hints.items()
        for annotation in get_args(hint)[1:]
        if isinstance(annotation, AcceptedValues)
    }


def fixed_beside(value: float, threshold: float, decimals: int = 1) -> str:
    """Format a number with that many decimals, or more to show its side of a threshold.

    >>> fixed_beside(5.25, 5), fixed_beside(5.0004, 5), fixed_beside(5, 5)
    ('5.3', '5.0004', '5.0')
    """
    return quantities.fixed(value, _count_decimals(value, threshold, decimals))


def percent_beside(ratio: float, threshold: float, decimals: int = 1) -> str:
    """Format a share with that many decimals, or more to show its side of a threshold.

    >>> percent_beside(0.63, 50), percent_beside(0.50004, 50), percent_beside(0.19996, 20)
    ('63.0%', '50.004%', '19.996%')
    >>> percent_beside(0.5, 50), percent_beside(0.07, 7), percent_beside(0.196, 20, 0)
    ('50.0%', '7.0%', '19.6%')

    Args:
        ratio: share, from 0 to 1.
        threshold: percentage, as parameters of rules have it.
        decimals: minimum count of decimals.
    """
    return quantities.percent(ratio, _count_decimals(100 * ratio, threshold, decimals))


def change_beside(ratio: float, threshold: float) -> str:
    """Format a relative change in whole percent, or finer to show its side of a threshold.

    >>> change_beside(0.25, 20), change_beside(0.2004, 20)
    ('+25%', '+20.04%')
    """
    return quantities.relative_change(ratio, _count_decimals(100 * ratio, threshold, 0))


def duration_beside(ns: float, threshold_ns: float) -> str:
    """Format a duration; where it would read like the threshold, in seconds or microseconds.

    >>> duration_beside(25e9, 20e9), duration_beside(1200.04e9, 1200e9)
    ('25 s', '1,200.04 s')
    >>> duration_beside(19.999e3, 20e3), duration_beside(20e3, 20e3)
    ('19.999 µs', '20 µs')
    """
    text = quantities.duration(ns)
    if ns == threshold_ns or text != quantities.duration(threshold_ns):
        return text
    unit, scale = ("s", 1e9) if threshold_ns >= 1e9 else ("µs", 1e3)
    return f"{fixed_beside(ns / scale, threshold_ns / scale, 0)} {unit}"


def share_beside(ratio: float, total: str, threshold: float) -> str:
    """Format a share with its total and its threshold.

    >>> share_beside(0.25, "step time", 20)
    '25.0% of step time (threshold 20%)'
    """
    limit = quantities.number(threshold, MAX_DECIMALS)
    return f"{percent_beside(ratio, threshold)} of {total} (threshold {limit}%)"


def _count_decimals(value: float, threshold: float, minimum: int) -> int:
    """Count the decimals with which a value is on its side of a threshold; the minimum where it
    equals the threshold."""
    for decimals in range(minimum, MAX_DECIMALS + 1):
        shown = float(quantities.fixed(value, decimals).replace(",", ""))
        if shown != threshold and (shown > threshold) == (value > threshold):
            return decimals
    return minimum
