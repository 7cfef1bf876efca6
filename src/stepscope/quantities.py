"""Quantities as text: one way to write them on every surface.

Terminal, page, report, notes and JSON sentences use these functions. `web/src/base/quantities.ts`
is the twin for the page; both are tested on `tests/golden/quantities.json`.

    missing            n/a
    numbers            three significant digits, all digits before the point: 13.5, 1,235
    durations          86.4 ms, 1.23 µs, 95.2 s, then 2 min 5 s, 1 h 3 min, 505 h, 41.7 d
    shares             91%, <1%
    memory             binary: 512 B, 1.5 KiB, 79.2 GiB; also buffers and bytes that kernels move
    files and rates    decimal, as disks and links are sold: 2.5 MB, 125 MB/s
    counts             1,234; rates of work in steps of 1000: 5.52 TFLOP/s
    money              $12.35, $0.000212
    changes            +3.2 ms, -59.1%, +3.1 pp (a change of a share, in percentage points)

Rounding is half away from zero on the shortest decimal form of a number, as ECMAScript's Intl does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal

MISSING = "n/a"
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_FILE_PREFIXES = ("", "k", "M", "G", "T", "P")
_SI_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_SHORT_UNITS = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
MAX_SECONDS = 119.5
"""Durations that round to two minutes or more are written in minutes."""
MAX_HOURS_WITH_MINUTES = 100
MAX_HOURS = 1000
"""Longer durations are written in days: machines are billed by the hour, so hours go far."""
MIN_HOURS = 0.001
"""Smaller amounts in the unit of hours, as of machines, are written as below it."""
MIN_PLAIN = 1e-4
MAX_PLAIN = 1e15
"""Numbers outside this range are written with an exponent."""
MIN_CENTS_USD = 0.1
"""Smaller amounts are written with three significant digits rather than cents."""


def fixed(value: float | None, decimals: int) -> str:
    """Format a number with a fixed count of decimals and thousands separators.

    >>> fixed(1234567.891, 2), fixed(3, 0), fixed(None, 1)
    ('1,234,567.89', '3', 'n/a')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{_rounded(value, decimals):,f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def figure(value: float | None, decimals: int) -> str:
    """Format a number with a fixed count of decimals, or with three significant digits where it
    would read as zero and is not.

    >>> figure(26.4372, 2), figure(0.0031234, 2), figure(0, 2)
    ('26.44', '0.00312', '0.00')
    """
    text = fixed(value, decimals)
    return number(value) if value and not text.strip("-0.") else text


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with that many significant digits, keeping all digits before the point.

    >>> number(5.9), number(40.0), number(13.46), number(1234.5), number(0.0000123)
    ('5.9', '40', '13.5', '1,235', '1.23e-5')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    significant = Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(repr(float(value)))
    exponent = significant.adjusted()
    if not MIN_PLAIN <= abs(value) < MAX_PLAIN:
        return f"{_trimmed(f'{significant.scaleb(-exponent):f}')}e{exponent}"
    return fixed(value, 0) if exponent >= digits else _trimmed(f"{significant:,f}")


def count(value: float | None) -> str:
    """Format a count: whole numbers in full, means of counts with three significant digits.

    >>> count(1234567), count(2.5), count(None)
    ('1,234,567', '2.5', 'n/a')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{int(value):,}" if value == int(value) else number(value)


def count_of(value: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun.

    >>> count_of(1, "step"), count_of(1200, "step"), count_of(2, "process", "processes")
    ('1 step', '1,200 steps', '2 processes')
    """
    return f"{count(value)} {singular if value == 1 else plural or f'{singular}s'}"


def duration(ns: float | None) -> str:
    """Format a duration in nanoseconds, in the unit that keeps it readable.

    >>> duration(86_400_000), duration(125e9), duration(3_780e9), duration(1_817_181e9)
    ('86.4 ms', '2 min 5 s', '1 h 3 min', '505 h')
    """
    if ns is None or not math.isfinite(ns):
        return MISSING
    size = abs(ns)
    if size < MAX_SECONDS * 1e9:
        unit, scale = _scale_of(size)
        return f"{number(ns / scale)} {unit}"
    return f"{'-' if ns < 0 else ''}{_long_duration(size)}"


def percent(ratio: float | None, decimals: int = 0) -> str:
    """Format a ratio as a percentage; a positive ratio that rounds to zero is `<1%`.

    >>> percent(0.914), percent(0.0004), percent(0.0004, 1), percent(None)
    ('91%', '<1%', '<0.1%', 'n/a')
    """
    return MISSING if ratio is None else _percentage(100 * ratio, decimals)


def memory(size_bytes: float | None) -> str:
    """Format an amount of memory in binary units.

    >>> memory(3 * 2**30), memory(1536), memory(12)
    ('3 GiB', '1.5 KiB', '12 B')
    """
    return _prefixed(size_bytes, 1024, _BINARY_PREFIXES, "B")


def file_size(size_bytes: float | None) -> str:
    """Format the size of a file or of data on a disk or link, in decimal units.

    >>> file_size(2_500_000), file_size(999)
    ('2.5 MB', '999 B')
    """
    return _prefixed(size_bytes, 1000, _FILE_PREFIXES, "B")


def byte_rate(bytes_per_s: float | None) -> str:
    """Format a rate of a disk, link or memory bus in decimal units.

    >>> byte_rate(125e6), byte_rate(None)
    ('125 MB/s', 'n/a')
    """
    return _prefixed(bytes_per_s, 1000, _FILE_PREFIXES, "B/s")


def scaled(value: float | None, unit: str) -> str:
    """Format a value with an SI prefix.

    >>> scaled(5.516e12, "FLOP/s"), scaled(12.0, "FLOP")
    ('5.52 TFLOP/s', '12 FLOP')
    """
    return _prefixed(value, 1000, _SI_PREFIXES, unit)


def dollars(usd: float | None) -> str:
    """Format an amount in US dollars with cents; below ten cents, three significant digits.

    >>> dollars(1234.5), dollars(0.000212345), dollars(-6.16), dollars(0)
    ('$1,234.50', '$0.000212', '-$6.16', '$0.00')
    """
    if usd is None or not math.isfinite(usd):
        return MISSING
    size = abs(usd)
    decimals = 2 - math.floor(math.log10(size)) if 0 < size < MIN_CENTS_USD else 2
    text = fixed(size, min(12, decimals))
    return f"{'-' if usd < 0 else ''}${text}"


def multiple(ratio: float | None) -> str:
    """Format a factor, such as a speedup.

    >>> multiple(1.849)
    '1.85x'
    """
    return MISSING if ratio is None or not math.isfinite(ratio) else f"{number(ratio)}x"


def in_unit(value: float | None, unit: str) -> str:
    """Format a value in the unit that a schema, payload or field name declares.

    >>> in_unit(0.5, "ratio"), in_unit(250.123, "watt"), in_unit(61, "celsius"), in_unit(7, "none")
    ('50.0%', '250 W', '61 °C', '7')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    symbol = UNIT_SYMBOLS.get(unit, unit.replace("_", " "))
    return f"{_plain(value)} {symbol}".rstrip()


def change(value: float | None, unit: str) -> str:
    """Format a difference of two values of a unit with its sign; of shares in percentage points.

    >>> change(3_200_000, "ns"), change(-0.031, "ratio"), change(0, "count")
    ('+3.2 ms', '-3.1 pp', '0')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if unit in {"ratio", "percent"}:
        points = 100 * value if unit == "ratio" else value
        return f"{'+' if value > 0 else ''}{fixed(points, 1)} pp"
    return f"{'+' if value > 0 else ''}{in_unit(value, unit)}"


def relative_change(ratio: float | None, decimals: int = 1) -> str:
    """Format a change as a share of the value before.

    >>> relative_change(-0.59, 0), relative_change(0.125), relative_change(0)
    ('-59%', '+12.5%', '0.0%')
    """
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    return f"{'+' if ratio > 0 else ''}{fixed(100 * ratio, decimals)}%"


def utc_time(epoch_ns: int) -> str:
    """Format nanoseconds since 1970 in UTC, to the second.

    >>> utc_time(1_640_485_617_250_000_000)
    '2021-12-26 02:26:57 UTC'
    """
    return datetime.fromtimestamp(epoch_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _plain(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else number(value)


UNIT_SYMBOLS = {
    "none": "",
    "watt": "W",
    "megahertz": "MHz",
    "celsius": "°C",
    "gb_per_s": "GB/s",
    "flop_per_byte": "FLOP/B",
}
"""Symbols of units that have no format of their own."""
_FORMATS: Mapping[str, Callable[[float], str]] = {
    "ns": duration,
    "ratio": lambda value: percent(value, 1),
    "percent": lambda value: _percentage(value, 1),
    "bytes_per_s": byte_rate,
    "bytes": memory,
    "per_s": lambda value: scaled(value, "/s"),
    "flop_per_s": lambda value: scaled(value, "FLOP/s"),
    "flop": lambda value: scaled(value, "FLOP"),
    "count": count,
    "hours": lambda value: f"<{MIN_HOURS:g} h" if 0 < value < MIN_HOURS else f"{_plain(value)} h",
    "usd": dollars,
    "none": lambda value: _plain(value) if value == int(value) else number(value, 4),
}


def _percentage(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return MISSING
    if 0 < value < 0.5 * 10**-decimals:
        return f"<{fixed(10**-decimals, decimals)}%"
    return f"{fixed(value, decimals)}%"


def _rounded(value: float, decimals: int) -> Decimal:
    return Decimal(repr(float(value))).quantize(
        Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP, context=Context(prec=400)
    )


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scale_of(size_ns: float) -> tuple[str, float]:
    for unit, scale in _SHORT_UNITS:
        if size_ns / scale < 999.5:
            return unit, scale
    return _SHORT_UNITS[-1]


def _long_duration(size_ns: float) -> str:
    seconds = math.floor(size_ns / 1e9 + 0.5)
    if seconds < 3600:
        return _two_units(seconds, 60, ("min", "s"))
    minutes = math.floor(size_ns / 60e9 + 0.5)
    hours = size_ns / 3600e9
    if minutes < 60 * MAX_HOURS_WITH_MINUTES:
        return _two_units(minutes, 60, ("h", "min"))
    return f"{number(hours)} h" if hours < MAX_HOURS else f"{number(hours / 24)} d"


def _two_units(value: int, step: int, units: tuple[str, str]) -> str:
    large, small = divmod(value, step)
    return f"{large:,} {units[0]}" + (f" {small} {units[1]}" if small else "")


def _prefixed(value: float | None, step: int, prefixes: tuple[str, ...], unit: str) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    power = 0
    while abs(value) / step**power >= step - 0.5 and power < len(prefixes) - 1:
        power += 1
    return f"{number(value / step**power)} {prefixes[power]}{unit}"
