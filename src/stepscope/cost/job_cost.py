"""Cost of a job: instances x hourly price x duration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

MAX_USD_PER_HOUR = 10**6
"""Maximum price of a machine; sums of such prices stay exact to the cent."""
HOUR_NS = 3600 * 10**9
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """Cost of one job.

    Prices and sums are decimal numbers of US dollars, so rounding to the cent is exact.
    """

    instance_count: int
    usd_per_hour: Decimal
    """Price of one instance."""
    duration_ns: int

    @property
    def exact_usd(self) -> Decimal:
        """instances x price x duration, not rounded."""
        return self.instance_count * self.usd_per_hour * self.duration_ns / Decimal(HOUR_NS)

    @property
    def usd(self) -> Decimal:
        """Cost rounded to the cent, half a cent up, as it is shown."""
        return self.exact_usd.quantize(_CENT, ROUND_HALF_UP)

    @property
    def instance_hours(self) -> float:
        """instances x duration in hours."""
        return self.instance_count * self.duration_ns / HOUR_NS

    def for_duration(self, duration_ns: float) -> JobCost:
        """Return the cost of the same instances for another duration."""
        return replace(self, duration_ns=round(duration_ns))

    def compute_usd(self, duration_ns: float | None) -> float | None:
        """Compute the cost of the same instances for another duration, not rounded; None where the
        duration is not known."""
        return None if duration_ns is None else float(self.for_duration(duration_ns).exact_usd)

    def saving_ratio(self, before: JobCost) -> float | None:
        """Compute the share of another job's cost that this one saves, negative when it costs more.

        Computed from the rounded costs, so that it agrees with the two figures shown next to it.
        None when the other job cost nothing.
        """
        return float(1 - self.usd / before.usd) if before.usd else None


def parse_usd_per_hour(value: float | str | Decimal) -> Decimal:
    """Parse an hourly price.

    Raises:
        ValueError, decimal.InvalidOperation: it is not a number between 0 and `MAX_USD_PER_HOUR`.
    """
    usd_per_hour = Decimal(str(value))
    if not usd_per_hour.is_finite() or not 0 <= usd_per_hour <= MAX_USD_PER_HOUR:
        raise ValueError(f"{value!r} is not a price")
    return usd_per_hour
