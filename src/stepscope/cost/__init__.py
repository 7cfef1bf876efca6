"""Cost of runs and potential savings.

    prices         price table of machine types, and custom price files
    job_cost       instances x hourly price x duration
    pricing        price of a run's machines; `price_job` makes the priced figures
    usage          utilization of the machines
    right_sizing   fewer or smaller machines that hold the utilization
    cost_report    cost per step, epoch and hour, and potential savings

The verdict and its predictions belong to `diagnosis`, text and screens to `cli` and `views`.
"""

from __future__ import annotations

from stepscope.cost.cost_report import Cost, FixSaving, report_cost
from stepscope.cost.job_cost import HOUR_NS, JobCost, parse_usd_per_hour
from stepscope.cost.prices import ENVIRONMENT, load_price_table
from stepscope.cost.pricing import (
    NO_PRICE,
    PricedJob,
    PriceRequest,
    PriceUsed,
    apply_price,
    explain_missing_offer,
    list_instance_types,
    price_job,
    price_verdict,
)
from stepscope.cost.right_sizing import RightSizing
from stepscope.cost.usage import MIN_SAMPLES, average_p95, measure_node_usage

__all__ = [
    "ENVIRONMENT",
    "HOUR_NS",
    "MIN_SAMPLES",
    "NO_PRICE",
    "Cost",
    "FixSaving",
    "JobCost",
    "PriceRequest",
    "PriceUsed",
    "PricedJob",
    "RightSizing",
    "apply_price",
    "average_p95",
    "explain_missing_offer",
    "list_instance_types",
    "load_price_table",
    "measure_node_usage",
    "parse_usd_per_hour",
    "price_job",
    "price_verdict",
    "report_cost",
]
