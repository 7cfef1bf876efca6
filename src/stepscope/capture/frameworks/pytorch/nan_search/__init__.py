"""Search for the operator that produces the first NaN or infinite number, on request: options
`--find-nan` and `--on-nan find`.

    search       start and end of the search, failures, check of each operator and of losses
    origins      where the non-finite numbers of each tensor come from; line, module and phase
    values       ranges and counts of tensors, and which arguments an operator writes

While the search is on, a dispatch mode of torch sees each operator of the forward pass, the loss,
the backward pass and the optimizer. It reads tensors and changes none; random numbers are not used.
Without the request nothing is imported.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
from stepscope.spool import NAN_SEARCH_VARIABLE

_probe = Probe("the search for NaN")
_INTERNALS = (
    "autograd_node", "current_dispatch_mode", "dispatch_mode", "dispatch_modes", "sequence_number",
    "step_post_hook", "step_pre_hook",
)  # fmt: skip

before_backward: Callable[[Any], None] | None = None
"""Takes the tensors of each backward pass that accumulates gradients; None without a request."""


def install() -> None:
    """Start the search if it is requested."""
    global before_backward
    start = os.environ.get(NAN_SEARCH_VARIABLE)
    if not start or PYTORCH.find_all(*_INTERNALS, loss="The origin of NaN is not searched") is None:
        return
    from stepscope.capture.frameworks.pytorch.nan_search.search import NanSearch

    search = NanSearch(_probe, start)
    before_backward = _probe.protect(search.before_backward)
    progress.is_plain = False
    search.install()
    atexit.register(_probe.protect(search.finish))
