"""What a job cost: instances times hourly price times time."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from stepscope.schema import RunInfo

_CENT = Decimal("0.01")
MOST_USD_PER_HOUR = 10**6
"""More is no price of a machine; and sums of such prices stay exact to the cent."""
_HOUR_NS = Decimal(3600 * 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCost:
    """The cost of one job.

    Prices are decimal numbers of US dollars, and so is the arithmetic: a cent is a cent.
    """

    instance_count: int
    usd_per_hour: Decimal
    """Of one instance."""
    duration_ns: int

    @property
    def exact_usd(self) -> Decimal:
        """instances x price x time, not rounded."""
        return self.instance_count * self.usd_per_hour * self.duration_ns / _HOUR_NS

    @property
    def usd(self) -> Decimal:
        """Rounded to the cent, half a cent up: as it is printed."""
        return self.exact_usd.quantize(_CENT, ROUND_HALF_UP)

    def saving_ratio(self, before: JobCost) -> float | None:
        """Share of what another job cost that this one saves, negative when it costs more.

        Computed from the rounded costs, so that it agrees with the two that are printed beside
        it. None when the other cost nothing.
        """
        return float(1 - self.usd / before.usd) if before.usd else None


def price(usd_per_hour: float | str | Decimal) -> Decimal:
    """A price as it is written; ValueError or InvalidOperation for what is none."""
    found = Decimal(str(usd_per_hour))
    if not found.is_finite() or not 0 <= found <= MOST_USD_PER_HOUR:
        raise ValueError(f"{usd_per_hour!r} is no price")
    return found


def recorded_price(info: RunInfo) -> Decimal | None:
    """US dollars per hour of one machine, as `stepscope run` was told; None when nobody said."""
    said = info.options.get("usd_per_hour")
    try:
        return None if said is None else price(said)
    except (ValueError, InvalidOperation):  # a run may come from anywhere
        return None
