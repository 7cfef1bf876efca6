"""A few failed writes of each process; `make write-faults` lets every one fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiers import extend_all_but
from tests.support.write_faults import ALWAYS, Fault, run_with_fault

FAULTS = (
    # Not even its directory: the error is in a page of the spool.
    Fault(process="trainer", directory="spool", error="ENOSPC", first=1, last=ALWAYS),
    # A broken disk takes the directory, and then nothing, not even the error.
    Fault(process="trainer", directory="spool", error="EIO", first=2, last=ALWAYS),
    # The first segment of the steps: the next one is tried after 100 ms.
    Fault(process="trainer", directory="spool", error="EDQUOT", first=18, last=18),
    # A file of the launcher in the requested spool: another spool is used.
    Fault(process="launcher", directory="spool", error="ENOSPC", first=6, last=ALWAYS),
    # The first table of the run, and all that follow: `recover` stores them.
    Fault(process="monitor", directory="run", error="EROFS", first=20, last=ALWAYS),
    Fault(process="watcher", directory="run", error="EIO", first=1, last=ALWAYS),
    # The progress of the monitor in the spool.
    Fault(process="monitor", directory="spool", error="ENOSPC", first=1, last=ALWAYS),
)
IN_MAKE_TEST = FAULTS[2:]
"""One for each process and directory, as docs/reliability.md has them; `NO_VERDICT` is another."""
NO_VERDICT = Fault(process="launcher", directory="run", error="ENOSPC", first=8, last=ALWAYS)


@pytest.mark.parametrize(
    "fault",
    extend_all_but(IN_MAKE_TEST, FAULTS, "another call of the same process"),
    ids=lambda fault: fault.title,
)
def test_a_failed_write(fault: Fault, tmp_path: Path) -> None:
    outcome = run_with_fault(fault, tmp_path)
    assert outcome.failed_calls
    assert not outcome.wrong
    assert not outcome.is_refused


@pytest.mark.extended("another job; test_a_failed_write has these calls")
def test_a_run_that_can_be_written_later(tmp_path: Path) -> None:
    """The monitor continues, although it can neither describe the node nor store anything yet."""
    fault = Fault(process="monitor", directory="run", error="EIO", first=1, last=5)
    outcome = run_with_fault(fault, tmp_path)
    assert len(outcome.failed_calls) == 5
    assert not outcome.wrong
    assert not outcome.is_recovered


def test_a_verdict_that_cannot_be_stored_is_printed(tmp_path: Path) -> None:
    """The last directory that the launcher creates in the run is that of the verdict. Before it
    comes that of the results, which are not stored within 20 ms of the last change of the run, and
    whose failure costs nothing."""
    outcome = run_with_fault(NO_VERDICT, tmp_path)
    failed = [Path(call.split()[-1]).name for call in outcome.failed_calls]
    assert "findings" in failed
    assert not outcome.wrong
    assert "The verdict is not stored in the run: " in outcome.messages
    assert "No space left on device" in outcome.messages
    assert "Traceback" not in outcome.messages
