"""Data of a run as frames: samples, spans, events of traces, tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import get_args

from stepscope.access.recorded import RecordedRun
from stepscope.access.selection import Moment, Names, chosen_names
from stepscope.access.tensors import Tensors
from stepscope.errors import UsageError
from stepscope.run import (
    EVENT_TABLES,
    Frame,
    Inside,
    frame_of_query,
    frame_of_table,
    list_elements,
    list_event_names,
    list_names,
    list_tensors,
    number_ranks,
    read_elements,
    read_job_samples,
    read_job_spans,
    read_tensors,
    read_trace_events,
)
from stepscope.schema import METRIC_TYPES, SPAN_KINDS, TABLES


class RunFrames(RecordedRun):
    """Data of a run as frames."""

    def system(
        self,
        *,
        metric: Names | None = None,
        node: Names | None = None,
        device: str | Sequence[str] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """Return samples of the nodes in order of time: t_ns, node, metric, device, value.

        Args:
            metric, node: names; UsageError for an unknown one.
            device: core or GPU number, disk, interface or pid as text; "" for the whole node.
            start, end: the range; None for an open one.
        """
        metrics = chosen_names("metric", metric, METRIC_TYPES)
        nodes = chosen_names("node", node, self.nodes)
        devices = [device] if isinstance(device, str) else device
        return Frame(
            lambda: read_job_samples(
                self._run.reader,
                metrics=metrics,
                nodes=nodes,
                devices=None if devices is None else list(devices),
                start_ns=self._moment(start),
                end_ns=self._moment(end),
            )
        )

    def framework(
        self,
        *,
        kind: Names | None = None,
        phase: Names | None = None,
        name: Names | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        inside: Inside = "any",
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
    ) -> Frame:
        """Return spans of the job's processes in a range, in order of start.

        Columns: rank, step, mode, phase, kind, name, start_ns, end_ns, duration_ns, depth, flags,
        value, labels, node, process, role, thread. Kinds, flags and values are those of the table
        `spans`; `run.job_spans` defines phase, step and mode. The duration of an aggregate, such as
        all calls of a transform for a batch, is the sum of their times.

        Args:
            kind, phase, name: names, or a pattern of whole names; UsageError for an unknown one.
            start, end: the range; None for an open one.
            inside: `any` for spans that overlap the range, `start` for those that start in it,
                `end` for those that end in it. A span that never ended lasts until after the range.
            steps: first step and the step after the last, by the numbers of `step_timeline`.
            rank: only this rank and the workers of its DataLoaders.
        """
        kinds = chosen_names("kind of span", kind, SPAN_KINDS)
        phases = None if phase is None else chosen_names("phase", phase, self.phases)
        names = self._event_names(name, "span", lambda: list_names(self._run.reader, "spans"))
        _check_inside(inside)
        number_ranks(self._run).require(rank)
        return Frame(
            lambda: read_job_spans(
                self._run,
                kinds=kinds,
                phases=phases,
                names=names,
                start_ns=self._moment(start),
                end_ns=self._moment(end),
                inside=inside,
                steps=steps,
                rank=rank,
            )
        )

    def trace_events(
        self,
        *,
        table: Names | None = None,
        name: Names | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        inside: Inside = "any",
        rank: int | None = None,
    ) -> Frame:
        """Return events of the recorded windows and imported traces in a range, in order of start.

        Columns: rank, trace, table, name, start_ns, end_ns, duration_ns, node. Times are on the
        clock of the run.

        Args:
            table: tables of events, such as `operators` and `kernels`.
            name: names, or a pattern of whole names; UsageError for an unknown one.
            start, end, inside: as of `framework`.
            rank: only traces of this rank.
        """
        tables = chosen_names("table of events", table, EVENT_TABLES)
        names = self._event_names(name, "event", lambda: list_event_names(self._run.reader))
        _check_inside(inside)
        number_ranks(self._run).require(rank)
        return Frame(
            lambda: read_trace_events(
                self._run,
                tables=tables,
                names=names,
                start_ns=self._moment(start),
                end_ns=self._moment(end),
                inside=inside,
                rank=rank,
            )
        )

    def tensors(
        self,
        pattern: str | re.Pattern[str] | None = None,
        *,
        collection: Names | None = None,
        rank: int | None = None,
    ) -> Tensors:
        """Return the statistics of tensors (option `--tensors`).

        Args:
            pattern: regular expression of whole names, such as `gradient/.*`; UsageError if it is
                not valid.
            collection: names of collections, such as weights; UsageError for an unknown one.
            rank: only this rank.
        """
        collections = (
            []
            if collection is None
            else chosen_names("collection", collection, list_tensors(self._run).values())
        )
        number_ranks(self._run).require(rank)
        try:
            names = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise UsageError(f"{pattern!r} is not a regular expression: {error}.") from None
        return Tensors(
            lambda: read_tensors(self._run, names, collections=collections or (), rank=rank),
            list_elements=lambda tensors: list_elements(self._run, tensors, rank=rank),
            read_elements=lambda elements: read_elements(self._run, elements),
            wait=self._wait,
        )

    def table(self, name: str) -> Frame:
        """Return a table of the run; docs/run-directory.md describes them."""
        chosen_names("table", name, TABLES)
        return frame_of_table(self._run.reader, name)

    def sql(self, query: str, parameters: Sequence[object] = ()) -> Frame:
        """Run a DuckDB query over the tables of the run.

        Raises:
            UsageError: on reading the frame, if the query is not valid or fails.
        """
        return frame_of_query(self._run.reader, query, parameters)

    @staticmethod
    def _event_names(
        name: Names | None, noun: str, list_available: Callable[[], list[str]]
    ) -> list[str] | None:
        return None if name is None else chosen_names(f"{noun} named", name, list_available())


def _check_inside(inside: str) -> None:
    chosen_names("part of an event", inside, get_args(Inside))
