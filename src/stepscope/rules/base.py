"""Base classes of rules.

A rule is a class whose docstring is its documentation page, with a frozen dataclass of parameters
and a struct of details. `Rule` evaluates the whole run each time; `IncrementalRule` has a state, so
the cost of a scan of a growing run is proportional to its new data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from stepscope.analysis import Device
from stepscope.quantities import count
from stepscope.rules.details import to_plain_data
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import NoParameters, format_parameters, make_parameters
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding, RuleStatus

P = TypeVar("P")
S = TypeVar("S")


class NotApplicable(Exception):  # noqa: N818 - not an error: the result for a run without inputs
    """The run does not have the inputs of a rule.

    Args:
        missing: the missing inputs, as a sentence without a full stop.
        datapoints: number of datapoints that the run does have.
        advice: the way to get the inputs. It is left out of findings in imported files: those have
            what they have.
    """

    def __init__(self, missing: str, datapoints: int = 0, *, advice: str = "") -> None:
        super().__init__(missing)
        self.missing = missing
        self.datapoints = datapoints
        self.advice = advice


class NotRecorded(NotApplicable):
    """The run has none of the data of a kind that is recorded only on request.

    Evaluations leave such a rule out of their findings unless it was requested by name.
    """


def require_more_than(limit: int, datapoints: int, unit: str) -> None:
    """Raise NotApplicable unless a count of datapoints exceeds a limit."""
    if datapoints <= limit:
        raise NotApplicable(
            f"only {count(datapoints)} {unit} so far; the rule requires more than {count(limit)}",
            datapoints,
        )


class Rule(Generic[P]):
    """One rule. A custom rule overrides `check` and has a docstring."""

    topic: ClassVar[str] = "custom"
    """Row of the rule in the table of docs/rules.md."""
    can_fire: ClassVar[bool] = True
    """False for a rule that only computes statistics."""
    parameters_type: ClassVar[type] = NoParameters
    aliases: ClassVar[Mapping[str, str]] = {}
    """Alternative names of parameters."""
    recommendation: ClassVar[str] = ""
    """One sentence of advice, shown when the rule fires."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics that the rule reads; those of all built-in rules are read in one query."""
    missing_in_traces: ClassVar[str] = ""
    """Reason, instead of that of `NotApplicable`, why the rule does not apply to a run of imported
    traces: those have what they have, so it says what they lack and not how to record it."""
    evidence: ClassVar[tuple[str, ...]] = ()
    """Views that show the evidence."""
    is_requested: bool = True
    """False if the rule was created because no rule was named, which stands for all of them."""
    plots: ClassVar[tuple[str, ...]] = ()
    """Charts over the time in which the rule fired: metrics, `step`, or phases of steps."""

    def __init__(self, parameters: P | None = None, **values: object) -> None:
        """Create the rule with a parameters object, or with parameters by name."""
        self.parameters: P = parameters or make_parameters(
            self.parameters_type, values, rule=self.name, aliases=self.aliases
        )

    @property
    def name(self) -> str:
        """Name of the rule."""
        return type(self).__name__

    def check(self, inputs: RuleInputs) -> Finding | None:
        """Evaluate the rule on a run; None if there is nothing to report.

        Raises:
            NotApplicable: the run does not have the inputs of the rule.
        """
        raise NotImplementedError

    def finding(
        self,
        *,
        triggered: int | Trigger,
        extent: Trigger | None = None,
        violations: int = 0,
        datapoints: int = 0,
        details: msgspec.Struct | Mapping[str, Any] | None = None,
        sentences: Iterable[str] = (),
        nodes: Iterable[str] = (),
        ranks: Iterable[str] = (),
        devices: Iterable[Device] = (),
    ) -> Finding:
        """Create a finding of this rule.

        Args:
            triggered: scans in which the condition held, or their count; the rule fired if there
                are any.
            extent: extent of the data that violated the condition; that of `triggered` by default.
                Without one, it is that of the evaluated run.
            violations, datapoints: counts as the rule's page defines them.
            details: numbers behind the sentences.
            sentences: results for users.
            nodes, ranks, devices: entities on which the rule fired.
        """
        sorted_devices = sorted(devices)
        trigger = triggered if isinstance(triggered, Trigger) else Trigger()
        times = trigger if extent is None else extent
        count = triggered if isinstance(triggered, int) else len(triggered)
        return Finding(
            rule=self.name,
            status=RuleStatus.ISSUES_FOUND if count else RuleStatus.NO_ISSUES_FOUND,
            rule_triggered=count,
            violations=violations,
            datapoints=datapoints,
            rule_parameters=format_parameters(self.parameters),
            details=to_plain_data(details),
            sentences=list(sentences),
            recommendation=self.recommendation if count else "",
            evidence=list(self.evidence),
            first_ns=times.first_ns if count else None,
            last_ns=times.last_ns if count else None,
            nodes=sorted({*nodes, *(device.node for device in sorted_devices)}),
            ranks=sorted(set(ranks)),
            devices=[str(device) for device in sorted_devices],
        )


class IncrementalRule(Rule[P], Generic[P, S]):
    """A rule that takes a run range by range.

    Its decisions depend on the data and not on how they were cut into ranges, as long as ranges
    end where scans do.
    """

    run_state: ClassVar[type[Any]]
    """Class of the state."""

    def start(self) -> S:
        """Return the state before any data."""
        state: S = self.run_state()
        return state

    def update(self, state: S, inputs: RuleInputs) -> S:
        """Return the state after one more range; the previous state must not be used again."""
        raise NotImplementedError

    def decide(self, state: S) -> Finding | None:
        """Return the finding so far, without changing the state.

        Raises:
            NotApplicable: the run does not have the inputs of the rule.
        """
        raise NotImplementedError

    def check(self, inputs: RuleInputs) -> Finding | None:
        """Evaluate the rule on a single range."""
        return self.decide(self.update(self.start(), inputs))
