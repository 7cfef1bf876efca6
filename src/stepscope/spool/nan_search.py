"""Request for the search for the origin of non-finite numbers.

`stepscope run` passes it to the processes of the job in an environment variable.
"""

from __future__ import annotations

NAN_SEARCH_VARIABLE = "STEPSCOPE_NAN_SEARCH"
"""Environment variable that holds the start of the search."""
FROM_START = "start"
"""Search in all steps."""
AFTER_LOSS = "loss"
"""Search in the steps after a loss that is not finite."""
