from __future__ import annotations

from stepscope.cost.cost_report import Cost, FixSaving, cost_of_run
from stepscope.cost.job_cost import JobCost, price
from stepscope.cost.prices import ENVIRONMENT, price_table
from stepscope.cost.pricing import NO_PRICE, Asked, Priced, PriceUsed, as_told, no_offer, price_of
from stepscope.cost.right_sizing import RightSizing
from stepscope.cost.usage import FEWEST_SAMPLES, mean_p95, node_usage

__all__ = [
    "ENVIRONMENT",
    "FEWEST_SAMPLES",
    "NO_PRICE",
    "Asked",
    "Cost",
    "FixSaving",
    "JobCost",
    "PriceUsed",
    "Priced",
    "RightSizing",
    "as_told",
    "cost_of_run",
    "mean_p95",
    "no_offer",
    "node_usage",
    "price",
    "price_of",
    "price_table",
]
