"""Pairs of trials."""

from __future__ import annotations

import pytest

from stepscope.errors import TrialError
from stepscope.trials import session
from stepscope.trials.processes import TrialReport

WHOLE = TrialReport(step_count=400, total_ns=400)
EARLY = TrialReport(step_count=40, total_ns=40, early_end="The job ended after 40 measured steps")


def test_a_job_that_ends_early_with_the_change_only_is_refused() -> None:
    with pytest.raises(TrialError, match=r"With the change: The job ended after 40 measured"):
        session._check_end(session._Pair(base=WHOLE, changed=EARLY, batch_factor=1))


@pytest.mark.parametrize(("base", "batch_factor"), [(EARLY, 1), (WHOLE, 2)])
def test_a_short_job_and_larger_batches_may_end_early(
    base: TrialReport, batch_factor: float
) -> None:
    session._check_end(session._Pair(base=base, changed=EARLY, batch_factor=batch_factor))
