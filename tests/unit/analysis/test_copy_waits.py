"""Waits for copies, against a search call by call."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from stepscope.analysis import HostCalls, find_copy_waits

CALL = st.tuples(
    st.integers(0, 1),  # thread
    st.integers(1, 9),  # duration
    st.integers(-1, 2),  # operator
    st.booleans(),  # waits
    st.booleans(),  # launches
)
COPY = st.tuples(st.integers(-1, 7), st.integers(0, 60))
Row = tuple[int, int, int, bool, bool]


@given(st.lists(CALL, max_size=8), st.lists(COPY, max_size=5), st.randoms())
def test_waits_are_those_of_a_search(
    rows: list[Row], copies: list[tuple[int, int]], random: object
) -> None:
    """Calls of a thread follow each other, in any order of rows."""
    free = {0: 0, 1: 0}
    timed = []
    for thread, duration, operator, waits, launches in rows:
        timed.append((thread, free[thread], free[thread] + duration, operator, waits, launches))
        free[thread] += duration
    random.shuffle(timed)  # type: ignore[attr-defined]
    columns = np.array([row[:4] for row in timed], dtype=np.int64).reshape(-1, 4).T
    calls = HostCalls(
        track=columns[0],
        start=columns[1],
        end=columns[2],
        operator=columns[3],
        is_wait=np.array([row[4] for row in timed], dtype=np.bool_),
        is_launch=np.array([row[5] for row in timed], dtype=np.bool_),
    )
    start_call = np.array([min(call, len(timed) - 1) for call, _ in copies], dtype=np.int64)
    end = np.array([end for _, end in copies], dtype=np.int64)
    result = find_copy_waits(calls, start_call, end)
    for i, (call, copy_end) in enumerate(zip(start_call.tolist(), end.tolist(), strict=True)):
        is_blocking, following = False, None
        if call >= 0:
            thread, _, call_end, operator, _, _ = timed[call]
            is_blocking = call_end >= copy_end
            later = [
                row
                for row in range(len(timed))
                if timed[row][0] == thread
                and timed[row][1] > timed[call][1]
                and (timed[row][4] or timed[row][5])
            ]
            first = min(later, key=lambda row: timed[row][1], default=None)
            following = first if first is not None and timed[first][4] else None
        lasts_until_end = following is not None and timed[following][2] >= copy_end
        is_own = following is not None and operator >= 0 and timed[following][3] == operator
        assert result.is_waited_for[i] == (is_blocking or lasts_until_end)
        assert result.call[i] == (call if is_blocking else -1)
        assert result.wait[i] == (following if is_own else -1)
