"""Whether two runs may be compared, and whether conditions on their difference hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from stepscope.analysis import CATEGORIES, PHASES
from stepscope.comparison.conditions import JOB_FIGURES, STEP_FIGURES, Condition, Unit
from stepscope.comparison.workload_contract import GROUPS, ContractGroup, GroupTerms, Standing
from stepscope.errors import UsageError

ALL = "all"
Outcome = Literal["passed", "failed", "unknown"]


class ContractDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not the same; null where a run does not say it."""

    name: str
    base: str | None
    other: str | None
    standing: Standing
    """`different`, or `unknown` where only one run says it."""


class ContractTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One group of what has to be equal for two runs to be comparable."""

    group: ContractGroup
    standing: Standing
    base_digest: str | None
    other_digest: str | None
    same_count: int
    differences: list[ContractDifference]


class ConditionResult(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of `--fail-if`."""

    condition: str
    outcome: Outcome
    """`failed` where it holds; `unknown` where a run lacks the figure."""
    said: str
    """One sentence with the numbers."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison was asked to decide."""

    outcome: Literal["passed", "failed", "not comparable"]
    said: str
    allowed: list[str]
    """Groups of the contract that may differ."""
    conditions: list[ConditionResult]


SHOWN_IN_S_NS = 10_000_000_000


class Figure(Protocol):
    """A figure of the whole job in both runs."""

    @property
    def name(self) -> str: ...
    @property
    def base(self) -> float | None: ...
    @property
    def other(self) -> float | None: ...


class StepFigure(Protocol):
    """A figure of the steps in both runs."""

    @property
    def name(self) -> str: ...
    @property
    def base_ns(self) -> float: ...
    @property
    def other_ns(self) -> float: ...
    @property
    def estimate_ns(self) -> float: ...
    @property
    def low_ns(self) -> float | None: ...
    @property
    def high_ns(self) -> float | None: ...
    @property
    def noise_ns(self) -> float | None: ...
    @property
    def beyond_noise(self) -> bool: ...


def contract_terms(groups: Sequence[GroupTerms]) -> list[ContractTerms]:
    """The payload of a contract."""
    return [
        ContractTerms(
            group=each.group,
            standing=each.standing,
            base_digest=each.base_digest,
            other_digest=each.other_digest,
            same_count=each.same_count,
            differences=[
                ContractDifference(
                    name=item.name, base=item.base, other=item.other, standing=item.standing
                )
                for item in each.items
            ],
        )
        for each in groups
    ]


def allowed_groups(names: Sequence[str]) -> frozenset[ContractGroup]:
    """Groups of the contract by name; `all` stands for each.

    Raises:
        UsageError: there is no group of a name.
    """
    for name in names:
        if name not in {*GROUPS, ALL}:
            raise UsageError(
                f"{name!r} is no group of the contract; there are {', '.join(GROUPS)}, and {ALL}."
            )
    return frozenset(group for group in GROUPS if group in names or ALL in names)


def judge(
    conditions: Sequence[Condition],
    terms: Sequence[ContractTerms],
    *,
    steps: tuple[Sequence[StepFigure], Sequence[StepFigure]] | None,
    figures: Sequence[Figure],
    allowed: Collection[ContractGroup],
    strict: bool,
    doubts: Sequence[str],
) -> Gate:
    """Whether conditions hold.

    Args:
        conditions: that shall not hold.
        terms: the contract of the two runs.
        steps: figures of whole steps, and of parts of the mean step; None where the runs have no
            steps that can be compared.
        figures: of the whole jobs.
        allowed: groups of the contract that may differ.
        strict: a change of steps counts within noise as well.
        doubts: why figures may not be those of the programs.
    """
    known = _steps_by_metric(*steps) if steps is not None else {}
    of_job = {figure.name: figure for figure in figures}
    results = [_result(each, known, of_job, strict=strict) for each in conditions]
    broken = [t.group for t in terms if t.standing == "different" and t.group not in allowed]
    failed = [each.condition for each in results if each.outcome == "failed"]
    unknown = [each.condition for each in results if each.outcome == "unknown"]
    outcome: Literal["passed", "failed", "not comparable"] = "passed"
    said = f"{len(results)} of {len(results)} conditions passed"
    if broken:
        outcome = "not comparable"
        said = (
            f"the runs did not do the same work: they differ in {', '.join(broken)}; where that is "
            f"meant, add --allow-different {broken[0]}"
        )
    elif doubts:
        outcome, said = "not comparable", doubts[0]
    elif failed:
        outcome, said = "failed", f"failed: {', '.join(failed)}"
    elif unknown:
        outcome = "not comparable"
        said = f"a run lacks what is needed for {', '.join(unknown)}"
    return Gate(outcome=outcome, said=said, allowed=sorted(allowed), conditions=results)


def _steps_by_metric(
    figures: Sequence[StepFigure], parts: Sequence[StepFigure]
) -> dict[str, StepFigure]:
    by_name = {figure.name: figure for figure in figures}
    metrics = {metric: by_name[name] for metric, name in STEP_FIGURES.items()}
    return metrics | {part.name: part for part in parts}


def _result(
    condition: Condition,
    steps: Mapping[str, StepFigure],
    of_job: Mapping[str, Figure],
    *,
    strict: bool,
) -> ConditionResult:
    if condition.metric in JOB_FIGURES:
        return _of_job(condition, of_job.get(JOB_FIGURES[condition.metric][0]))
    found = steps.get(condition.metric)
    if found is not None:
        return _of_steps(condition, found, strict=strict)
    if condition.metric in _parts_of(steps):
        holds = condition.holds(0.0)
        return _answer(condition, _outcome(holds), "no step of either run has any of it")
    return _answer(condition, "unknown", "the steps of the two runs cannot be compared")


def _parts_of(steps: Mapping[str, StepFigure]) -> Collection[str]:
    """What steps like these may consist of: phases, or categories of recorded steps."""
    named = steps.keys() - STEP_FIGURES
    return next((every for every in (PHASES, CATEGORIES) if named and named <= {*every}), ())


def _of_steps(condition: Condition, found: StepFigure, *, strict: bool) -> ConditionResult:
    numbers = _numbers(found.base_ns, found.other_ns, "ns")
    if condition.of == "value":
        return _answer(condition, _outcome(condition.holds(found.other_ns)), numbers)
    change = found.estimate_ns
    holds = condition.holds(_measure(condition, found.base_ns, found.base_ns + change))
    if change != found.other_ns - found.base_ns:
        share = f" ({change / found.base_ns:+.1%})" if found.base_ns else ""
        numbers += f"; by all runs {_number(change, 'ns', signed=True)}{share}"
    if found.low_ns is None or found.high_ns is None or found.noise_ns is None:
        decided: Outcome = "unknown" if holds and not strict else _outcome(holds)
        return _answer(condition, decided, f"{numbers}; too few steps to know the noise")
    noise = (
        f"interval {_number(found.low_ns, 'ns', signed=True)} to "
        f"{_number(found.high_ns, 'ns', signed=True)}, noise floor {_number(found.noise_ns, 'ns')}"
    )
    if not found.beyond_noise and _hides(condition, found.base_ns, found.noise_ns):
        noise += ", which hides what the condition is about: record several runs of each"
    if not holds:
        return _answer(condition, "passed", f"{numbers}; {noise}")
    if found.beyond_noise:
        return _answer(condition, "failed", f"{numbers}, beyond noise; {noise}")
    if strict:
        return _answer(
            condition, "failed", f"{numbers}, within noise, which --strict counts; {noise}"
        )
    return _answer(condition, "passed", f"{numbers}, but within noise; {noise}")


def _hides(condition: Condition, base_ns: float, noise_ns: float) -> bool:
    """Whether a change that just meets the condition is within the noise floor."""
    if condition.of == "relative change":
        return 0 < abs(condition.threshold) * base_ns < noise_ns
    return condition.of == "change" and 0 < abs(condition.threshold) < noise_ns


def _of_job(condition: Condition, found: Figure | None) -> ConditionResult:
    if found is None or found.other is None or (found.base is None and condition.of != "value"):
        return _answer(condition, "unknown", "a run does not have this figure")
    base = found.other if found.base is None else found.base
    holds = condition.holds(_measure(condition, base, found.other))
    numbers = _numbers(base, found.other, condition.unit)
    return _answer(condition, _outcome(holds), f"{numbers}; its noise is not known")


def _measure(condition: Condition, base: float, other: float) -> float:
    """What the condition is about."""
    if condition.of == "value":
        return other
    if condition.of == "change":
        return other - base
    if base:
        return (other - base) / abs(base)
    return 0.0 if other == base else float("inf") if other > base else float("-inf")


def _outcome(holds: bool) -> Outcome:
    return "failed" if holds else "passed"


def _answer(condition: Condition, outcome: Outcome, said: str) -> ConditionResult:
    return ConditionResult(condition=condition.text, outcome=outcome, said=said)


def _numbers(base: float, other: float, unit: Unit) -> str:
    share = f" ({(other - base) / abs(base):+.1%})" if base else ""
    change = _number(other - base, unit, signed=True)
    if unit == "ratio":
        change = change.replace("%", "pp")  # points, not a share of the base
    return f"{_number(base, unit)} to {_number(other, unit)}: {change}{share}"


def _number(value: float, unit: Unit, *, signed: bool = False) -> str:
    sign = "+" if signed and value > 0 else ""
    match unit:
        case "ns":
            in_s = abs(value) >= SHOWN_IN_S_NS
            return f"{sign}{value / 1e9:.4g} s" if in_s else f"{sign}{value / 1e6:.4g} ms"
        case "ratio":
            return f"{sign}{100 * value:.3g} %"
        case "bytes":
            return f"{sign}{value / 1e6:.4g} MB"
        case "usd":
            return f"{sign}{value:.4g} usd"
        case "per_s":
            return f"{sign}{value:.4g} /s"
        case "hours":
            return f"{sign}{value:.4g} h"
