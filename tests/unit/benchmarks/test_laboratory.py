"""The laboratory: rounds in random order, ratios within them, disturbed rounds, failures, pages."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from benchmarks.laboratory.page import (
    NOT_MEASURED,
    TIMES,
    describe_row,
    describe_rows,
    quote_figure,
)
from benchmarks.laboratory.results import RowResult
from benchmarks.laboratory.rounds import Measured, Round, Usage, measure_rounds, read_usage
from benchmarks.laboratory.rows import ROWS, Row, all_rows
from benchmarks.measuring import CommandError, measure
from tools.docs.blocks import update_blocks

ROOT = Path(__file__).parents[3]


def figures(*values: float) -> Callable[[], float]:
    iterator = iter(values)
    return lambda: next(iterator)


def fail() -> float:
    raise RuntimeError("it is not installed")


def quiet() -> Iterator[Usage]:
    """Draw a machine with two cores that do nothing but what is measured."""
    return (Usage(float(t), 2.0 * t, 2.0 * t) for t in count())


def last(measured: Iterator[Measured]) -> Measured:
    return list(measured)[-1]


def make_result(rounds: list[Round], failures: dict[str, str] | None = None) -> RowResult:
    return RowResult("2026-01-01", "a machine", "abc", None, "", Measured(rounds, failures or {}))


def rounds_of(*values: dict[str, float], outside_cores: float = 0.0) -> list[Round]:
    return [Round(list(one), one, outside_cores) for one in values]


def row(**options: object) -> Row:
    return Row(name="work", unit="s", subjects=lambda _: {}, **options)  # type: ignore[arg-type]


def test_every_round_runs_every_subject_once_in_its_order() -> None:
    calls: list[str] = []
    subjects = {name: lambda name=name: calls.append(name) or 1.0 for name in "abc"}
    machine = quiet()
    measured = last(
        measure_rounds(
            subjects, 2, warm_up=True, shuffle=lambda names: names.reverse(), read=machine.__next__
        )
    )
    assert calls == [*"abc", *"cba", *"cba"]  # warm-up, then rounds in the drawn order
    assert [one.order for one in measured.rounds] == [[*"cba"]] * 2


def test_ratios_are_of_the_same_round() -> None:
    """A machine that becomes ten times slower changes no ratio."""
    measured = last(
        measure_rounds(
            {"stepscope": figures(1, 10, 2), "peer": figures(4, 40, 8)},
            3,
            warm_up=False,
            read=quiet().__next__,
        )
    )
    ratios = measured.ratios("stepscope", "peer")
    assert ratios is not None
    assert set(ratios) == {0.25}


def test_a_round_is_disturbed_by_other_processes() -> None:
    """In the second round, 0.3 of 2 core-seconds are of others, in the first 0.1."""
    usages = [Usage(0, 0, 0), Usage(1, 2, 1.9), Usage(1, 2, 1.9), Usage(2, 4, 3.6)]
    measured = last(
        measure_rounds({"a": figures(1, 2)}, 2, warm_up=False, read=iter(usages).__next__)
    )
    assert [one.outside_cores for one in measured.rounds] == pytest.approx([0.1, 0.3])
    assert measured.rounds[1].is_disturbed
    unknown = Usage(0, None, 0)
    measured = last(measure_rounds({"a": figures(1)}, 1, warm_up=False, read=lambda: unknown))
    assert not measured.rounds[0].is_disturbed


@pytest.mark.parametrize(("quiet_count", "median"), [(3, 1.0), (2, 5.0)])
def test_disturbed_rounds_count_only_where_few_are_quiet(quiet_count: int, median: float) -> None:
    disturbed = rounds_of(*[{"stepscope": 5.0}] * 3, outside_cores=1.0)
    rounds = rounds_of(*[{"stepscope": 1.0}] * quiet_count) + disturbed
    line = describe_row(row(), make_result(rounds))
    values = Measured(rounds, {}).values("stepscope")
    assert values is not None
    assert values.median == median
    note = "3; 3 more were disturbed" if quiet_count == 3 else "5, 3 of them disturbed"
    assert line.endswith(f"| {note} |")


def test_a_subject_that_fails_gets_a_sentence_and_the_others_go_on() -> None:
    subjects = {"stepscope": figures(1, 1), "peer": fail}
    measured = last(measure_rounds(subjects, 2, warm_up=False, read=quiet().__next__))
    assert measured.failures == {"peer": "it is not installed"}
    assert [one.values for one in measured.rounds] == [{"stepscope": 1}] * 2
    result = RowResult("2026-01-01", "a machine", "abc", None, "", measured)
    with_peer = row(yardstick="peer", target=0.5)
    assert describe_row(with_peer, result) == (
        f"| work | s | 1 | peer {NOT_MEASURED} | {NOT_MEASURED} | ≤ 0.5 {TIMES} | 2 |"
    )


def test_a_target_is_reached_or_missed() -> None:
    result = make_result(rounds_of(*[{"stepscope": 1.0, "peer": 2.0}] * 3))
    for options, words in (
        ({"yardstick": "peer", "target": 0.5}, f"≤ 0.5 {TIMES}: reached"),
        ({"yardstick": "peer", "target": 0.4}, f"≤ 0.4 {TIMES}: **missed**"),
        ({"yardstick": "peer", "limit": 0.9}, "≤ 0.9 s: **missed**"),
        ({"limit": 1}, "≤ 1 s: reached"),
    ):
        assert f" {words} |" in describe_row(row(**options), result)


def test_the_power_of_growth_is_computed_within_a_round() -> None:
    sizes = {"small": 10, "large": 1000}
    rounds = rounds_of(*[{"small": slow, "large": slow * 10} for slow in (1.0, 7.0, 2.0)])
    powers = Measured(rounds, {}).exponents(sizes)
    assert powers is not None
    assert powers.median == pytest.approx(math.log(10) / math.log(100))
    assert "power 0.5 (0.5 … 0.5)" in describe_row(row(sizes=sizes), make_result(rounds))


def test_a_command_is_measured_or_its_failure_described() -> None:
    code = "import time; end = time.process_time() + 0.05\nwhile time.process_time() < end: pass"
    before = read_usage()
    cost = measure([sys.executable, "-c", code], samples_memory=True)
    after = read_usage()
    assert cost.cpu_s >= 0.05
    assert cost.memory_mb > 1
    assert after.measured_cpu_s - before.measured_cpu_s >= cost.cpu_s
    code = "import sys; print('no file', file=sys.stderr); sys.exit(3)"
    with pytest.raises(CommandError, match="ended with 3: no file"):
        measure([sys.executable, "-c", code])
    with pytest.raises(CommandError, match="did not end within 0 s"):
        measure(["sleep", "60"], limit_s=0.01)


def test_rows_have_names_of_their_own() -> None:
    assert len(all_rows()) == sum(map(len, ROWS.values()))


def test_what_is_not_measured_says_so() -> None:
    assert describe_rows({}).count(f"| {NOT_MEASURED} |") == len(all_rows())


def test_the_readme_has_no_other_figure_of_performance() -> None:
    """Figures of cost and speed are those of rows, which test_docs.py compares with the results."""
    readme = (ROOT / "README.md").read_text()
    names = re.findall(r"<!-- generated: (?:ratio|value) of (.+?) -->", readme)
    assert len(names) == 2
    assert {name for name in names if name not in all_rows()} == set()
    assert update_blocks(readme) == readme
    rest = re.sub(r"<!-- generated: .+?<!-- end -->", "", readme)
    measured = rest.split("## Three numbers")[1].split("\n## ")[0]
    lines = [line for line in measured.splitlines() if "`make bench`" in line]
    assert [line for line in lines if re.search(r"\d+(\.\d+)?( ?%| of)|±", line)] == []
    assert not re.search(
        rf"\d ?{TIMES} |µs|\d% (of the step time|overhead)|times (faster|slower)", rest
    )


def test_a_figure_in_a_sentence_is_that_of_its_row_on_a_quiet_machine() -> None:
    name = "`diagnose RUN`, 2,551 events"
    values = {"stepscope": 1.0, "earlier build": 4.0}
    quiet_result = {name: make_result(rounds_of(*[values] * 3))}
    assert quote_figure("value", name, quiet_result) == "1 (1 … 1) CPU s"
    ratio = f"0.25 (0.25 … 0.25) {TIMES} earlier build"
    assert quote_figure("ratio", name, quiet_result) == ratio
    disturbed = {name: make_result(rounds_of(values, outside_cores=1.0))}
    assert quote_figure("value", name, disturbed) == f"{NOT_MEASURED} on a quiet machine"
    assert quote_figure("ratio", name, {}) == quote_figure("value", name, {}) == NOT_MEASURED
    with pytest.raises(KeyError):
        quote_figure("value", "no such row", {})
