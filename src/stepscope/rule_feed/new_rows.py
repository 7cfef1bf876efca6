"""Rows of tensors and scalars that were not returned before, of a run that may be growing."""

from __future__ import annotations

from stepscope.analysis import LoggedScalars, TensorSeries, TensorValues
from stepscope.run import Run, select_scalars, select_tensor_values, select_tensors


class NewRows:
    """Rows of `tensor_statistics`, `tensor_values` and `scalars`, each returned once.

    A row can be written long after its time: statistics on a GPU are read at a later recorded step.
    So the rows of a range of time are not enough: the last number of each log says which rows
    before the range are new.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[tuple[str, str], int]] = {}
        """Last number by table or collection of values, process and log."""
        self._until_ns: dict[str, int] = {}
        """By table or collection of values, end of the time whose rows were returned."""

    def tensors(self, run: Run, *, final: bool) -> list[TensorSeries]:
        """Return the new rows before the end of the run's period, or all new rows if `final`."""
        if not run.reader.has("tensor_statistics"):
            return []
        condition = self._condition("tensor_statistics", run, final=final)
        return select_tensors(run, *condition)

    def values(self, run: Run, collection: str, *, final: bool) -> list[TensorValues]:
        """Return the new small matrices of a collection, as `tensors` does."""
        if not run.reader.has("tensor_values"):
            return []
        condition = self._condition("tensor_values", run, final=final, collection=collection)
        return select_tensor_values(run, *condition)

    def scalars(self, run: Run, *, final: bool) -> list[LoggedScalars]:
        """Return the new values, as `tensors` does."""
        if not run.reader.has("scalars"):
            return []
        return select_scalars(run, *self._condition("scalars", run, final=final))

    def _condition(
        self, table: str, run: Run, *, final: bool, collection: str | None = None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the SQL condition of the new rows, and count them as returned.

        Args:
            collection: only rows of this one, which are counted by themselves.
        """
        source = table if collection is None else f"{table} {collection}"
        last = self._last.setdefault(source, {})
        until_ns, end_ns = self._until_ns.get(source), run.period.end_ns
        conditions = [] if final else [f"t_ns < {end_ns}"]
        parameters: tuple[object, ...] = ()
        if collection is not None:
            conditions.append("collection = ?")
            parameters = (collection,)
        if until_ns is not None:
            returned, limits = _up_to(last)
            parameters += limits
            conditions.append(f"NOT (t_ns < {until_ns} AND {returned})")
        condition = " AND ".join(conditions) or "TRUE"
        rows = run.reader.sql(
            f"SELECT process, log, min(seq) AS first, max(seq) AS seq FROM {table} "  # noqa: S608 - names of ours
            f"WHERE {condition} GROUP BY process, log",
            parameters,
        )
        new = {
            (process, log): int(number)
            for process, log, number in zip(rows["process"], rows["log"], rows["seq"], strict=True)
        }
        for key, number in new.items():
            last[key] = max(number, last.get(key, -1))
        self._until_ns[source] = end_ns
        if not new:
            return "FALSE", ()
        # With the first number, the store skips most of what was returned: rows are wide, unlike
        # these columns. Rows that are written before the next query are those of a later call.
        counted, limits = _up_to(new)
        first = int(rows["first"].min())
        return f"seq >= {first} AND {condition} AND {counted}", (*parameters, *limits)


def _up_to(last: dict[tuple[str, str], int]) -> tuple[str, tuple[object, ...]]:
    """Return the SQL condition of the rows of logs up to a number each, with its parameters."""
    condition = " OR ".join(["(process = ? AND log = ? AND seq <= ?)"] * len(last)) or "FALSE"
    return f"({condition})", tuple(value for (key, n) in last.items() for value in (*key, n))
