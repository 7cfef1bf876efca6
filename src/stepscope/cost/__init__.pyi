from .cost_report import Cost as Cost, FixSaving as FixSaving, report_cost as report_cost
from .prices import (
    ENVIRONMENT as ENVIRONMENT,
    HOUR_NS as HOUR_NS,
    NO_PRICE as NO_PRICE,
    JobCost as JobCost,
    explain_missing_offer as explain_missing_offer,
    load_price_table as load_price_table,
    parse_usd_per_hour as parse_usd_per_hour,
)
from .pricing import (
    PricedJob as PricedJob,
    PriceRequest as PriceRequest,
    PriceUsed as PriceUsed,
    apply_price as apply_price,
    list_instance_types as list_instance_types,
    price_job as price_job,
    price_verdict as price_verdict,
)
from .right_sizing import (
    MIN_SAMPLES as MIN_SAMPLES,
    RightSizing as RightSizing,
    average_p95 as average_p95,
    measure_node_usage as measure_node_usage,
)
