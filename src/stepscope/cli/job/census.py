"""Census of a running job's memory: its request, and the lines that show its result."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec

from stepscope import diagnosis, errors, store
from stepscope.cli.output import print_json, say
from stepscope.quantities import duration, memory, number, percent
from stepscope.run import (
    MemoryCensus,
    check_windows_enabled,
    find_listening_nodes,
    has_ended,
    make_census_request,
    open_run,
    read_memory_censuses,
    read_request_statuses,
    recommend,
    send_window_request,
)

ANSWER_S = 20.0
"""Time that monitors have to write a result into the run."""
POLL_S = 0.2
MAX_SHOWN = 5


class CensusTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    run: str
    request: str
    censuses: list[MemoryCensus]


def take_census(run: str, *, timeout_s: float, as_json: bool) -> None:
    """Request a census of the memory of all processes, wait for it, and show it.

    Raises:
        UsageError: no monitor can read the request.
        StepscopeError: no census was taken.
    """
    reader = store.open_run(run)
    check_windows_enabled(run, reader)
    nodes = find_listening_nodes(run, reader)
    request = make_census_request()
    send_window_request(run, request)
    if not as_json:
        say("requested; the second census follows after at least 20 steps and 2 s")
    deadline = time.monotonic() + timeout_s
    expected = _await(run, request.name, nodes, reader, deadline)
    censuses = _read(run, expected, deadline + ANSWER_S)
    if as_json:
        print_json(CensusTaken(run=run, request=request.name, censuses=censuses))
        return
    for census in censuses:
        for line in describe_census(census):
            click.echo(line)


def _await(
    run: str, name: str, nodes: list[str], reader: store.RunReader, deadline: float
) -> dict[str, int]:
    """Wait until all processes have answered; returns the numbers of the censuses by process.

    Raises:
        StepscopeError: no process has answered in time.
    """
    while True:
        is_last = has_ended(reader.statuses().values())
        answers = read_request_statuses(run, name, nodes)
        is_complete = len(answers) == len(nodes) and all(a.state.is_final for a in answers.values())
        if is_complete or is_last or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    stored = {
        window.process: window.number
        for answer in answers.values()
        for window in answer.windows
        if window.state is store.RequestState.STORED
    }
    if not stored:
        reasons = [answer.message for answer in answers.values() if answer.message]
        reason = reasons[0] if reasons else "no process has answered in time"
        raise errors.StepscopeError(f"No census of memory was taken: {reason}.")
    return stored


def _read(run: str, expected: dict[str, int], deadline: float) -> list[MemoryCensus]:
    """Read the censuses from the run, into which the monitor writes them a little later."""
    while True:
        censuses = [
            census
            for census in read_memory_censuses(open_run(run))
            if expected.get(census.process) == census.request
        ]
        if len(censuses) == len(expected) or time.monotonic() > deadline:
            return censuses
        time.sleep(POLL_S)


def describe_census(census: MemoryCensus) -> Iterator[str]:
    """Describe what grows in one process, as lines."""
    unit = census.unit
    yield (
        f"{census.title}: {memory(census.growth_per_step_bytes)} a {unit}, over "
        f"{number(census.step_count)} {unit}{'es' if unit == 'batch' else 's'}; "
        f"paused for {duration(census.pause_ns)}"
    )
    if not census.holders:
        yield "  No container of the job grows."
    for holder in census.holders[:MAX_SHOWN]:
        yield f"  {diagnosis.describe_holder(holder)}"
        fix = recommend(holder)
        if fix:
            yield f"    {fix}"
    if census.native_ratio is not None and census.native_ratio > 0.1 and census.holders:
        yield f"  native, not in a container: {percent(census.native_ratio)} of the growth"
    if census.note:
        yield f"  {census.note}"
