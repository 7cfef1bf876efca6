"""Base classes of rules, of the details of findings, and of the time when a condition holds.

A rule is a class whose docstring is its documentation page, with a frozen dataclass of parameters
and a struct of details. `Rule` evaluates the whole run each time; `IncrementalRule` has a state, so
the cost of a scan of a growing run is proportional to its new data.

Details of findings: one struct per rule, defined in the file of the rule. A finding holds them as
plain data. Every field has a default: a run that an older version wrote may lack some, and fields
that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema
from stepscope.quantities import count
from stepscope.rules.inputs import RuleInputs, scan_ends, scan_indices
from stepscope.rules.parameters import NoParameters, format_parameters, make_parameters

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
    rests_on_devices: ClassVar[bool] = False
    """True if the rule rests on idle or busy time of the devices in traces: where that is not
    understood, this is the reason instead."""
    evidence: ClassVar[tuple[str, ...]] = ()
    """Views that show the evidence."""
    is_requested: bool = True
    """False if the rule was created because no rule was named, which stands for all of them."""
    has_ended: bool = False
    """True if nothing follows the evaluated data; set before a finding is made."""
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

    def check(self, inputs: RuleInputs) -> schema.Finding | None:
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
        devices: Iterable[analysis.Device] = (),
    ) -> schema.Finding:
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
        return schema.Finding(
            rule=self.name,
            status=schema.RuleStatus.ISSUES_FOUND if count else schema.RuleStatus.NO_ISSUES_FOUND,
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

    def decide(self, state: S) -> schema.Finding | None:
        """Return the finding so far, without changing the state.

        Raises:
            NotApplicable: the run does not have the inputs of the rule.
        """
        raise NotImplementedError

    def check(self, inputs: RuleInputs) -> schema.Finding | None:
        """Evaluate the rule on a single range."""
        return self.decide(self.update(self.start(), inputs))


D = TypeVar("D", bound=msgspec.Struct)


class BoxPlot(msgspec.Struct, frozen=True):
    """Quartiles, whiskers and extremes of some values.

    The whiskers extend 1.5 interquartile ranges from the quartiles, at most to the extremes.
    """

    count: int = 0
    """Number of values."""
    min: float = 0.0
    p5: Annotated[float, schema.field_label(unit="inherited")] = 0.0
    p25: float = 0.0
    p50: float = 0.0
    p75: float = 0.0
    p95: float = 0.0
    max: float = 0.0
    whisker_low: Annotated[float, schema.field_label("lower whisker", unit="inherited")] = 0.0
    whisker_high: Annotated[float, schema.field_label("upper whisker", unit="inherited")] = 0.0


class HistogramCounts(msgspec.Struct, frozen=True):
    """Histogram of durations with bins of equal width."""

    edges_s: list[float] = []
    """Edges of the bins in seconds, one more than there are bins."""
    counts: list[int] = []
    """Values per bin."""


def to_plain_data(details: msgspec.Struct | Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert details to the plain data that a finding holds."""
    data: dict[str, Any] = msgspec.to_builtins(details or {}, str_keys=True)
    return data


def read_details(finding: schema.Finding, details_type: type[D]) -> D | None:
    """Read the details of a finding; None if it has none, as for a rule that did not apply."""
    return msgspec.convert(finding.details, details_type) if finding.details else None


class Trigger(msgspec.Struct):
    """Scans in which a rule's condition held, and the extent of the data that violated it."""

    ends_ns: set[int] = msgspec.field(default_factory=set)
    """Ends of the scans, each once for any number of devices."""
    first_ns: int | None = None
    """Start of the first data that violated the condition; None before any."""
    last_ns: int | None = None
    """End of the last data that violated it."""

    def __len__(self) -> int:
        return len(self.ends_ns)

    def add_scans(self, inputs: RuleInputs, scans: intervals.Int) -> None:
        """Add scans by index."""
        self.ends_ns.update(scan_ends(inputs, scans))

    def add_times(self, inputs: RuleInputs, t_ns: intervals.Int | list[int]) -> None:
        """Add the scans that contain some times."""
        self.add_scans(inputs, scan_indices(inputs, np.asarray(t_ns, dtype=np.int64)))

    def cover(self, start_ns: intervals.Int | int, end_ns: intervals.Int | int) -> None:
        """Extend the extent by data that violated the condition, with their starts and ends."""
        starts, ends = np.atleast_1d(start_ns), np.atleast_1d(end_ns)
        if not len(starts):
            return
        first, last = int(starts.min()), int(ends.max())
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)

    def include(self, trigger: Trigger) -> None:
        """Extend the extent by that of another trigger."""
        if trigger.first_ns is not None and trigger.last_ns is not None:
            self.cover(trigger.first_ns, trigger.last_ns)


def last_indices(numbers: intervals.Int) -> intervals.Int:
    """Return the index of the last element of each run of equal numbers.

    >>> last_indices(np.array([4, 4, 5, 7, 7])).tolist()
    [1, 2, 4]
    """
    if not len(numbers):
        return np.empty(0, dtype=np.int64)
    return np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)
