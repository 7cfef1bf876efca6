"""Data of a run as frames: samples, spans, events of traces, tables, values of tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

from stepscope import analysis, errors, run, schema
from stepscope.access.recorded import Moment, Names, RecordedRun, chosen_names
from stepscope.run import list_elements, read_elements


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
    ) -> run.Frame:
        """Return samples of the nodes in order of time: t_ns, node, metric, device, value.

        Args:
            metric, node: names; UsageError for an unknown one.
            device: core or GPU number, disk, interface or pid as text; "" for the whole node.
            start, end: the range; None for an open one.
        """
        metrics = chosen_names("metric", metric, schema.METRIC_TYPES)
        nodes = chosen_names("node", node, self.nodes)
        devices = [device] if isinstance(device, str) else device
        return run.Frame(
            lambda: run.read_job_samples(
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
        inside: run.Inside = "any",
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
    ) -> run.Frame:
        """Return spans of the job's processes in a range, in order of start.

        Columns: rank, step, mode, phase, kind, name, start_ns, end_ns, duration_ns, depth, flags,
        value, labels, node, process, role, thread. Kinds, flags and values are those of the table
        `spans`; `run.job.spans` defines phase, step and mode. The duration of an aggregate, such as
        all calls of a transform for a batch, is the sum of their times.

        Args:
            kind, phase, name: names, or a pattern of whole names; UsageError for an unknown one.
            start, end: the range; None for an open one.
            inside: `any` for spans that overlap the range, `start` for those that start in it,
                `end` for those that end in it. A span that never ended lasts until after the range.
            steps: first step and the step after the last, by the numbers of `step_timeline`.
            rank: only this rank and the workers of its DataLoaders.
        """
        kinds = chosen_names("kind of span", kind, schema.SPAN_KINDS)
        phases = None if phase is None else chosen_names("phase", phase, self.phases)
        names = self._event_names(name, "span", lambda: run.list_names(self._run.reader, "spans"))
        _check_inside(inside)
        run.number_ranks(self._run).require(rank)
        return run.Frame(
            lambda: run.read_job_spans(
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
        inside: run.Inside = "any",
        rank: int | None = None,
    ) -> run.Frame:
        """Return events of the recorded windows and imported traces in a range, in order of start.

        Columns: rank, trace, table, name, start_ns, end_ns, duration_ns, node. Times are on the
        clock of the run.

        Args:
            table: tables of events, such as `operators` and `kernels`.
            name: names, or a pattern of whole names; UsageError for an unknown one.
            start, end, inside: as of `framework`.
            rank: only traces of this rank.
        """
        tables = chosen_names("table of events", table, run.EVENT_TABLES)
        names = self._event_names(name, "event", lambda: run.list_event_names(self._run.reader))
        _check_inside(inside)
        run.number_ranks(self._run).require(rank)
        return run.Frame(
            lambda: run.read_trace_events(
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
            else chosen_names("collection", collection, run.list_tensors(self._run).values())
        )
        run.number_ranks(self._run).require(rank)
        try:
            names = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise errors.UsageError(f"{pattern!r} is not a regular expression: {error}.") from None
        return Tensors(
            lambda: run.read_tensors(self._run, names, collections=collections or (), rank=rank),
            list_elements=lambda tensors: list_elements(self._run, tensors, rank=rank),
            read_elements=lambda elements: read_elements(self._run, elements),
            wait=self._wait,
        )

    def table(self, name: str) -> run.Frame:
        """Return a table of the run; docs/run-directory.md describes them."""
        chosen_names("table", name, schema.TABLES)
        return run.frame_of_table(self._run.reader, name)

    def sql(self, query: str, parameters: Sequence[object] = ()) -> run.Frame:
        """Run a DuckDB query over the tables of the run.

        Raises:
            UsageError: on reading the frame, if the query is not valid or fails.
        """
        return run.frame_of_query(self._run.reader, query, parameters)

    @staticmethod
    def _event_names(
        name: Names | None, noun: str, list_available: Callable[[], list[str]]
    ) -> list[str] | None:
        return None if name is None else chosen_names(f"{noun} named", name, list_available())


def _check_inside(inside: str) -> None:
    chosen_names("part of an event", inside, get_args(run.Inside))


DEFAULT_TIMEOUT_S = 600.0


class Tensors:
    """Statistics of tensors at the recorded steps.

        gradients = run.tensors("gradient/.*")
        gradients.steps()
        gradients.reduction("l2").pandas()

    Args:
        load: reads the series.
        list_elements: lists the recorded elements of tensors by name.
        read_elements: reads the elements of one tensor at one step.
        wait: waits until a function finds nothing missing in the run, at most some seconds.
    """

    def __init__(
        self,
        load: Callable[[], list[analysis.TensorSeries]],
        *,
        list_elements: Callable[[list[str]], list[run.TensorElements]],
        read_elements: Callable[[run.TensorElements], Any],
        wait: Callable[[Callable[[], str | None], float], object],
    ) -> None:
        self._load = load
        self._list_elements = list_elements
        self._read_elements = read_elements
        self._wait = wait
        self._series: list[analysis.TensorSeries] | None = None

    def __repr__(self) -> str:
        return f"Tensors({', '.join(self.names)})"

    def __len__(self) -> int:
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """Names, such as `layers.0.weight` and `gradient/layers.0.weight`."""
        return sorted({series.name for series in self._all})

    @property
    def modes(self) -> list[str]:
        """Modes in which they were recorded."""
        return sorted({series.mode for series in self._all})

    @property
    def ranks(self) -> list[int]:
        """Ranks that recorded them; the only process of a job is rank 0."""
        return sorted({series.rank or 0 for series in self._all})

    def steps(self) -> list[int]:
        """Return the recorded steps: the number of steps of a process before each."""
        return sorted({step for series in self._all for step in series.step.tolist()})

    def reduction(self, name: str) -> run.Frame:
        """Return a number that describes each tensor at each step: tensor, rank, mode, step, t_ns
        and the number.

        Args:
            name: min, max, mean, std, variance, sum, product, l1, l2, abs_mean, element_count,
                nan_count, infinite_count, zero_count, zero_ratio, update_l2 or update_ratio; the
                numbers that are no counts describe the finite elements.

        Raises:
            UsageError: there is no such reduction.
        """
        if name not in analysis.REDUCTIONS:
            raise errors.UsageError(
                f"{name!r} is no reduction; choose one of {', '.join(analysis.REDUCTIONS)}."
            )
        return run.Frame(lambda: run.frame_of_tensors(self._all, (name,)))

    def frame(self) -> run.Frame:
        """Return all reductions, one row per tensor and step."""
        return run.Frame(lambda: run.frame_of_tensors(self._all, analysis.REDUCTIONS))

    def array(
        self, tensor: str, name: str, *, rank: int = 0, mode: str = "TRAIN"
    ) -> analysis.Float:
        """Return a reduction of one tensor at its steps; NaN where it is not known.

        Raises:
            UsageError: there is no such tensor or reduction.
        """
        for series in self._all:
            if (series.name, series.rank or 0, series.mode) == (tensor, rank, mode):
                try:
                    return series.reduction(name)
                except KeyError:
                    break
        else:
            raise errors.UsageError(f"{tensor!r} was not recorded in mode {mode} on rank {rank}.")
        raise errors.UsageError(
            f"{name!r} is no reduction; choose one of {', '.join(analysis.REDUCTIONS)}."
        )

    def value(self, step: int, *, rank: int | None = None, mode: str | None = None) -> Any:
        """Return the elements of the only selected tensor at a step (option `--tensors-raw`).

        Args:
            step: the step.
            rank, mode: required if several ranks or modes recorded the tensor at the step.

        Returns:
            An array of NumPy in the shape and type of the tensor; of bfloat16 and 8-bit
            floating-point numbers, which NumPy does not have, float32 with the same values. Of a
            distributed tensor (DTensor) it has the part of the rank.

        Raises:
            UsageError: several tensors are selected, or the elements were not recorded.
            DamagedRunError: the file with the elements is missing or damaged.
        """
        elements = self._elements(rank, mode)
        if step not in elements:
            recorded = ", ".join(map(str, elements))
            raise errors.UsageError(
                f"The elements of {self.names[0]} were not recorded at step {step}, "
                f"only at these steps: {recorded}."
            )
        return self._read_elements(elements[step])

    def values(self, *, rank: int | None = None, mode: str | None = None) -> dict[int, Any]:
        """Return the elements of the only selected tensor by step; see `value`."""
        elements = self._elements(rank, mode)
        return {step: self._read_elements(one) for step, one in elements.items()}

    def wait_for(self, step: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Tensors:
        """Wait until a selected tensor is recorded at this step or a later one; returns the
        tensors, read again. The run is read again, too.

        Raises:
            JobEndedError: the job has ended without them.
            WaitTimeoutError: there were none in time, or the monitor is lost.
        """

        def lacks_step() -> str | None:
            self._series = None
            last = max(self.steps(), default=None)
            if last is not None and last >= step:
                return None
            have = "none of the tensors" if last is None else f"the tensors up to step {last}"
            return f"has {have}, not yet at step {step}"

        self._wait(lacks_step, timeout_s)
        return self

    def _elements(self, rank: int | None, mode: str | None) -> dict[int, run.TensorElements]:
        """Return the recorded elements of the only tensor by step.

        Raises:
            UsageError: there are none, or those of several tensors, ranks or modes.
        """
        names = self.names
        if len(names) != 1:
            tensors = ", ".join(names[:5]) or "none"
            raise errors.UsageError(
                "The elements of one tensor can be read at a time, and the pattern selects "
                f"{len(names)}: {tensors}{', …' if len(names) > 5 else ''}."
            )
        elements = [
            one
            for one in self._list_elements(names)
            if rank in {None, one.rank} and mode in {None, one.mode}
        ]
        if not elements:
            raise errors.UsageError(
                f"The elements of {names[0]} were not recorded. Run the job with "
                f"`--tensors-raw {names[0]}`."
            )
        if len({(one.rank, one.mode) for one in elements}) > 1:
            ranks = ", ".join(map(str, sorted({one.rank for one in elements})))
            modes = ", ".join(sorted({one.mode for one in elements}))
            raise errors.UsageError(
                f"{names[0]} was recorded on the ranks {ranks} in the modes {modes}. Choose one, "
                "such as rank=0 and mode='TRAIN'."
            )
        return {one.step: one for one in elements}

    @property
    def _all(self) -> list[analysis.TensorSeries]:
        if self._series is None:
            self._series = self._load()
        return self._series
