"""Tables of docs/performance.md and figures of README.md, from the results of the laboratory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.laboratory.bench import EARLIER, STEPSCOPE
from benchmarks.laboratory.results import RowResult, load_results
from benchmarks.laboratory.rounds import MIN_QUIET_ROUNDS, Measured
from benchmarks.laboratory.rows import ROWS, Row, all_rows
from benchmarks.measuring import Quartiles

NOT_MEASURED = "not measured"
TIMES = "\N{MULTIPLICATION SIGN}"
HEADER = (
    "| work | unit | this build | others | ratio | target | rounds |\n"
    "|---|---|---:|---|---|---|---|\n"
)


def describe_rows(results: Mapping[str, RowResult] | None = None) -> str:
    """Return all tables, with notes below each."""
    results = load_results() if results is None else results
    parts = []
    for title, rows in ROWS.items():
        lines = [describe_row(row, results.get(row.name)) for row in rows]
        notes = [note for row in rows for note in describe_failures(row, results.get(row.name))]
        listed = "".join(f"- {note}\n" for note in notes)
        parts.append(f"## {title}\n\n{HEADER}" + "\n".join(lines) + f"\n\n{listed}")
    return "\n".join([*parts, describe_circumstances(results)])


def describe_row(row: Row, result: RowResult | None) -> str:
    """Return the line of a row."""
    if result is None:
        cells = [NOT_MEASURED, "", "", describe_target(row), ""]
    else:
        measured = result.measured
        cells = [
            describe_own(row, measured),
            describe_others(row, measured),
            describe_ratio(row, measured),
            describe_target(row, measured),
            describe_rounds(measured),
        ]
    return f"| {' | '.join([row.name, row.unit, *cells])} |"


def describe_own(row: Row, measured: Measured) -> str:
    """Return the figures of this build, at each size in a row of growth."""
    names = list(row.sizes or [STEPSCOPE])
    figures = [describe_figure(measured, name) for name in names]
    return "; ".join(figures)


def describe_others(row: Row, measured: Measured) -> str:
    """Return the figures of the other subjects."""
    if row.sizes:
        return ""
    names = {name for one in measured.rounds for name in one.values} | set(measured.failures)
    return "; ".join(
        f"{name} {describe_figure(measured, name)}" for name in sorted(names - {STEPSCOPE})
    )


def describe_figure(measured: Measured, name: str) -> str:
    """Return the median of a subject."""
    values = measured.values(name)
    return NOT_MEASURED if name in measured.failures or values is None else number(values.median)


def describe_ratio(row: Row, measured: Measured) -> str:
    """Return the ratio of this build to the yardstick, or the exponent, with quartiles."""
    ratio = find_ratio(row, measured)
    if row.sizes:
        return f"power {spread(ratio)}" if ratio else NOT_MEASURED
    if row.yardstick is None:
        return ""
    return f"{spread(ratio)} {TIMES} {row.yardstick}" if ratio else NOT_MEASURED


def find_ratio(row: Row, measured: Measured) -> Quartiles | None:
    """Return the ratio to the yardstick, or the exponent."""
    if row.sizes:
        return None if measured.failures else measured.exponents(row.sizes)
    if row.yardstick is None or {STEPSCOPE, row.yardstick} & set(measured.failures):
        return None
    return measured.ratios(STEPSCOPE, row.yardstick)


def describe_target(row: Row, measured: Measured | None = None) -> str:
    """Return what should be reached, and whether it is."""
    ratio = measured and find_ratio(row, measured)
    figure = ratio
    words = f"≤ {number(row.target)} {TIMES}" if row.target is not None else ""
    bound = row.target
    if row.limit is not None:
        words = f"power ≤ {number(row.limit)}" if row.sizes else f"≤ {number(row.limit)} {row.unit}"
        bound = row.limit
        if not row.sizes:
            is_missing = measured is None or STEPSCOPE in measured.failures
            figure = None if is_missing else measured.values(STEPSCOPE)
    if bound is None or figure is None:
        return words
    return f"{words}: {'reached' if figure.median <= bound else '**missed**'}"


def describe_rounds(measured: Measured) -> str:
    """Return the number of rounds that count, and of disturbed ones."""
    disturbed = sum(one.is_disturbed for one in measured.rounds)
    counted = len(measured.counted)
    if not disturbed:
        return f"{counted}"
    if counted < len(measured.rounds):
        return f"{counted}; {disturbed} more were disturbed"
    return f"{counted}, {'all' if disturbed == counted else disturbed} of them disturbed"


def describe_failures(row: Row, result: RowResult | None) -> list[str]:
    """Return a sentence for each subject that was not measured."""
    failures = result.measured.failures if result else {}
    return [f"{row.name}: {name} was not measured: {why}" for name, why in failures.items()]


def describe_circumstances(results: Mapping[str, RowResult]) -> str:
    """Say when and where the results were measured, and what ran meanwhile."""
    if not results:
        return "Nothing was measured yet."
    dates = sorted({result.date for result in results.values()})
    lines = [
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, "
        f"{len(results)} of {len(all_rows())} rows.",
        f"Machine: {_join(result.machine for result in results.values())}.",
        f"This build: {_join(result.revision for result in results.values())}.",
        f"The {EARLIER}: {_join(result.earlier or 'none' for result in results.values())}.",
        f"A round is disturbed when other processes used more than a tenth of a core meanwhile; "
        f"where fewer than {MIN_QUIET_ROUNDS} others remain, disturbed rounds count, too.",
    ]
    remarks = dict.fromkeys(result.remark for result in results.values() if result.remark)
    return "\n".join(f"- {line}" for line in [*lines, *remarks])


def _join(names: Iterable[str]) -> str:
    return "; ".join(sorted(set(names)))


def quote_figure(kind: str, name: str, results: Mapping[str, RowResult] | None = None) -> str:
    """Return the figure of a row for a sentence, if it was measured on a quiet machine.

    Args:
        kind: "ratio" to the yardstick, or "value" of this build in the unit of the row.
        name: the row.
        results: default: those of the file.

    Raises:
        KeyError: there is no such row.
    """
    row, results = all_rows()[name], load_results() if results is None else results
    measured = results[name].measured if name in results else Measured([], {})
    if any(one.is_disturbed for one in measured.counted):
        return f"{NOT_MEASURED} on a quiet machine"
    if kind == "ratio":
        return describe_ratio(row, measured)
    values = None if STEPSCOPE in measured.failures else measured.values(STEPSCOPE)
    return NOT_MEASURED if values is None else f"{spread(values)} {row.unit}"


def spread(values: Quartiles) -> str:
    """Write a median with its quartiles."""
    return f"{number(values.median)} ({number(values.low)} … {number(values.high)})"


def number(value: float) -> str:
    """Write a number with three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{float(f'{value:.3g}'):g}"
