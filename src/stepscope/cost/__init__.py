"""Cost of runs and potential savings.

    prices         price table of machine types, custom price files; cost of a job
    pricing        price of a run's machines; `price_job` makes the priced figures
    right_sizing   utilization, and fewer or smaller machines that hold it
    cost_report    cost per step, epoch and hour, and potential savings

The verdict and its predictions belong to `diagnosis`, text and screens to `cli` and `views`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
