"""Headline of a comparison: different work first, then the strongest evidence of a change."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.comparison.step_changes import MIN_STEPS, StepChange, StepDifference
from stepscope.comparison.workload_contract import ContractTerms
from stepscope.quantities import change, count_of, duration, percent

MIN_NAMED_SHARE = 0.01
"""Smallest change of a part that the headline names, as a share of the mean step."""
MAX_NAMED = 3
"""Limit of changes in a sentence."""
DIFFERENT_WORK = (
    "The runs did different work ({}), so a change of the step may not be one of the program. "
)


def write_headline(difference: StepDifference | None, contract: Sequence[ContractTerms]) -> str:
    """Write the headline of a comparison.

    Args:
        difference: difference of the steps; None where they cannot be compared.
        contract: the work of both runs. Different software is often what is compared, so only the
            other groups are named.
    """
    names = [
        name
        for terms in contract
        if terms.standing == "different" and terms.group != "software"
        for name in _name_difference(terms)
    ]
    work = DIFFERENT_WORK.format(", ".join(names)) if names else ""
    return work + _describe_change(difference)


def _name_difference(terms: ContractTerms) -> list[str]:
    """Name what differs: the devices and counts of the hardware, other groups as a whole."""
    if terms.group != "hardware":
        return [terms.group]
    return [item.name for item in terms.differences if item.standing == "different"]


def _describe_change(difference: StepDifference | None) -> str:
    if difference is None:
        return "The steps of the two runs cannot be compared."
    mean, p50 = difference.mean, difference.p50
    if mean.noise_ns is None or mean.low_ns is None or mean.high_ns is None:
        return (
            f"Too few steps to tell a change of the mean step ({change(mean.estimate_ns, 'ns')}) "
            f"from noise: at least {MIN_STEPS} consecutive steps of each run are needed."
        )
    parts = _select_parts(difference)
    if mean.beyond_noise:
        if not parts:
            return f"{_describe_figure(mean)}; no single part changed beyond noise."
        return f"{_describe_figure(mean)}; largest part: {_describe_part(parts[0])}."
    interval = (
        f"with {count_of(difference.step_count, 'step')} the {difference.interval_percent}% "
        f"interval of the mean is {change(mean.low_ns, 'ns')} to {change(mean.high_ns, 'ns')}"
    )
    beyond = [_describe_figure(p50)] if p50.beyond_noise else []
    if parts:
        changes = ", ".join(map(_describe_part, parts[:MAX_NAMED]))
        beyond.append(f"{'parts' if beyond else 'Parts of the step'} beyond noise: {changes}")
    if not beyond:
        return f"No change of the step beyond noise: mean {_describe_shift(mean)}; {interval}."
    rest = "" if p50.beyond_noise else f", the median {_describe_shift(p50)}"
    return f"{'; '.join(beyond)}. The mean step is {_describe_shift(mean)}{rest}; {interval}."


def _select_parts(difference: StepDifference) -> list[StepChange]:
    """Select the parts that explain a change, largest first: those that changed beyond noise."""
    limit_ns = MIN_NAMED_SHARE * difference.mean.base_ns
    parts = [
        part
        for part in difference.parts.values()
        if part.beyond_noise and abs(part.estimate_ns) >= limit_ns
    ]
    return sorted(parts, key=lambda part: -abs(part.estimate_ns))


def _describe_figure(figure: StepChange) -> str:
    name = {"p50": "median"}.get(figure.name, figure.name)
    return f"The {name} step is {_describe_shift(figure)}"


def _describe_shift(figure: StepChange) -> str:
    if not figure.estimate_ns:
        return "unchanged"
    share = f" ({percent(abs(figure.estimate_ns) / figure.base_ns)})" if figure.base_ns else ""
    direction = "shorter" if figure.estimate_ns < 0 else "longer"
    return f"{duration(abs(figure.estimate_ns))}{share} {direction}"


def _describe_part(part: StepChange) -> str:
    return f"{part.name.replace('_', ' ')} {change(part.estimate_ns, 'ns')}"
