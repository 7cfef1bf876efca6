"""What a rule is.

A rule is a class whose docstring is its page in the manual, with a frozen dataclass of parameters.
`Rule` is asked about the whole run each time; `IncrementalRule` keeps a state, so that a scan of
a growing run costs what its new data cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from stepscope.rules.firing import Firing
from stepscope.rules.parameters import NoParameters, make_parameters, parameters_text
from stepscope.rules.signals import Device, Signals
from stepscope.schema import Finding, RuleStatus

P = TypeVar("P")
S = TypeVar("S")


class NotApplicable(Exception):  # noqa: N818 - no error: the answer to a run without the inputs
    """What a rule needs is not in the run.

    Args:
        missing: what, as a sentence that says how it can be had.
        datapoints: what the rule did see.
    """

    def __init__(self, missing: str, datapoints: int = 0) -> None:
        super().__init__(missing)
        self.missing = missing
        self.datapoints = datapoints


def require_more(seen: int, than: int, what: str) -> None:
    """Abstain unless a rule has seen more of something than its patience asks for."""
    if seen <= than:
        raise NotApplicable(
            f"{seen} {what} were seen and the rule needs more than {than}: let the job run longer",
            seen,
        )


class Rule(Generic[P]):
    """One rule. A rule of one's own overrides `check` and has a docstring."""

    parameters_type: ClassVar[type] = NoParameters
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of parameters."""
    recommendation: ClassVar[str] = ""
    """One sentence: what to do when it fires."""
    evidence: ClassVar[tuple[str, ...]] = ()
    """Views that show what it rests on."""
    plots: ClassVar[tuple[str, ...]] = ()
    """What to draw over the time at which it fired: metrics, `step`, or phases of steps."""

    def __init__(self, parameters: P | None = None, **values: object) -> None:
        """With the parameters given, or made of values by name; the others have their defaults."""
        self.parameters: P = parameters or make_parameters(
            self.parameters_type, values, rule=self.name, aliases=self.aliases
        )

    @property
    def name(self) -> str:
        """The rule's name."""
        return type(self).__name__

    def check(self, signals: Signals) -> Finding | None:
        """What the rule finds in a run; None for nothing.

        Raises:
            NotApplicable: the run does not have what the rule needs.
        """
        raise NotImplementedError

    def finding(
        self,
        *,
        triggered: int | Firing,
        violations: int = 0,
        datapoints: int = 0,
        details: Mapping[str, Any] | None = None,
        sentences: Iterable[str] = (),
        nodes: Iterable[str] = (),
        ranks: Iterable[str] = (),
        devices: Iterable[Device] = (),
    ) -> Finding:
        """A finding of this rule.

        Args:
            triggered: when it fired, or in how many scans; it has fired unless that is nothing.
            violations, datapoints: as the rule's page has them.
            details: numbers behind the sentences, plain data.
            sentences: what was found, for people.
            nodes, ranks, devices: what it fired on.
        """
        on = sorted(devices)
        firing = triggered if isinstance(triggered, Firing) else Firing()
        count = triggered if isinstance(triggered, int) else len(triggered)
        return Finding(
            rule=self.name,
            status=RuleStatus.ISSUES_FOUND if count else RuleStatus.NO_ISSUES_FOUND,
            rule_triggered=count,
            violations=violations,
            datapoints=datapoints,
            rule_parameters=parameters_text(self.parameters),
            details=dict(details or {}),
            sentences=list(sentences),
            recommendation=self.recommendation if count else "",
            evidence=list(self.evidence),
            first_ns=firing.first_ns,
            last_ns=firing.last_ns,
            nodes=sorted({*nodes, *(device.node for device in on)}),
            ranks=sorted(set(ranks)),
            devices=[str(device) for device in on],
        )


class IncrementalRule(Rule[P], Generic[P, S]):
    """A rule that takes a run in piece by piece.

    What it decides depends on what it was given and not on how that was cut, as long as ranges
    end where scans do.
    """

    def start(self) -> S:
        """The state before anything was seen."""
        raise NotImplementedError

    def update(self, state: S, signals: Signals) -> S:
        """The state after one more range; the old one is used up."""
        raise NotImplementedError

    def decide(self, state: S) -> Finding | None:
        """What was found so far; changes nothing. Raises NotApplicable as `check` does."""
        raise NotImplementedError

    def check(self, signals: Signals) -> Finding | None:
        """What the rule finds in a range that it sees as a whole."""
        return self.decide(self.update(self.start(), signals))
