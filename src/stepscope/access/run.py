"""What can be asked of a run."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from stepscope.access import distributions, functions, loading, tables, timelines
from stepscope.access.frames import Columns, Frame
from stepscope.access.framework import framework_columns, known_phases
from stepscope.access.selection import Moment, Names, chosen_names, moment_ns
from stepscope.access.system import system_columns
from stepscope.analysis import (
    DURATION_BINS,
    HEATMAP_METRICS,
    HEATMAP_TICKS,
    PHASES,
    RATIO_BIN,
    Heatmap,
    build_heatmap,
)
from stepscope.comparison import Comparison, allowed_groups, comparison, parse_condition
from stepscope.cost import Cost, JobCost, PriceRequest, parse_usd_per_hour, report_cost
from stepscope.diagnosis import Verdict, diagnose
from stepscope.errors import UsageError
from stepscope.exporters import ExportedTimeline, export_timeline
from stepscope.run import JobStatistics, NodeMetrics, Rank, Run, job_borders, job_statistics
from stepscope.schema import METRIC_TYPES, SPAN_KINDS, TABLES, RunInfo
from stepscope.store import DictColumn, open_run
from stepscope.views.profiling_report import Report, make_report, report_rules

LOADING_KINDS = ["data_wait", "loader_start", "fetch"]


class OpenRun:
    """One run. Everything is read when it is first asked for.

    Times are integer nanoseconds; ranges hold their start and not their end. What was not
    recorded is missing, never zero: frames then have no rows, or a missing value.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"OpenRun({self.info.run_id!r})"

    @property
    def info(self) -> RunInfo:
        """What `run.json` says."""
        return self._run.reader.info

    @property
    def start_ns(self) -> int:
        """When the job began, in nanoseconds since 1970; where nothing says so, when the run was
        made."""
        return self._borders[0]

    @property
    def end_ns(self) -> int:
        """When the job ended, or was last heard of."""
        return self._borders[1]

    @property
    def nodes(self) -> list[str]:
        """The machines that were sampled."""
        return sorted(self._run.nodes)

    @property
    def ranks(self) -> list[int]:
        """Ranks of the job, empty outside a distributed one."""
        return sorted({p.rank for p in self._run.processes if p.rank is not None})

    @property
    def phases(self) -> list[str]:
        """Phases that spans of the run are of."""
        return known_phases(self._run.reader)

    @property
    def damage(self) -> list[str]:
        """What could not be read so far, one sentence per file."""
        return self._run.reader.damage

    def verdict(self) -> Verdict:
        """What the job waits for."""
        return diagnose(self._run)

    def report(
        self,
        rules: Sequence[str] = (),
        *,
        config: str | Path | None = None,
        settings: Sequence[str] = (),
    ) -> Report:
        """What `stepscope report RUN` shows, section by section.

        Args:
            rules: names of rules, or `path.py:MyRule`; none for all of them.
            config: a TOML or JSON file with a table of parameters per rule.
            settings: `Name.parameter=value`; they win over the file.
        """
        chosen = report_rules(
            rules, config=None if config is None else Path(config), settings=settings
        )
        return make_report(self._run, chosen)

    # --- frames ------------------------------------------------------------------------------

    def system(
        self,
        *,
        metric: Names | None = None,
        node: Names | None = None,
        device: str | Sequence[str] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """Samples of the machines in order of time: t_ns, node, metric, device, value.

        Args:
            metric, node: which; UsageError when there is none of a name.
            device: core or GPU number, disk, interface or pid as text; "" for the whole node.
            start, end: the range; None for an open one.
        """
        metrics = chosen_names("metric", metric, METRIC_TYPES)
        nodes = chosen_names("node", node, self.nodes)
        devices = [device] if isinstance(device, str) else device
        return Frame(
            lambda: system_columns(
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
        start: Moment | None = None,
        end: Moment | None = None,
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
    ) -> Frame:
        """Spans of the job's processes that overlap a range, in order of start.

        Columns: rank, step, phase, kind, name, start_ns, end_ns, duration_ns, depth, flags, value,
        labels, node, process, role, thread. Kinds, flags and values are those of the table
        `spans`; `access.framework` says what phase and step are.

        Args:
            kind, phase: which; UsageError when there is none of a name.
            start, end: the range; None for an open one.
            steps: spans that began in steps from the first until before the second, by the
                numbers that `step_timeline` gives.
            rank: only this rank and the workers of its DataLoaders.
        """
        kinds = chosen_names("kind of span", kind, SPAN_KINDS)
        phases = None if phase is None else chosen_names("phase", phase, self.phases)
        self._known_rank(rank)
        return Frame(
            lambda: self._spans(
                kinds=kinds, phases=phases, start=start, end=end, steps=steps, rank=rank
            )
        )

    def table(self, name: str) -> Frame:
        """A whole table of the run; docs/run-directory.md says what is in each."""
        chosen_names("table", name, TABLES)
        strings = [c.name for c in TABLES[name].columns if c.type == "VARCHAR"]
        return Frame(lambda: self._run.reader.table(name, encoded=strings))

    def sql(self, query: str, parameters: Sequence[object] = ()) -> Frame:
        """The result of a DuckDB query over the tables of the run."""

        def load() -> Columns:
            found: dict[str, Any] = self._run.reader.sql(query, parameters)
            return {
                name: DictColumn.encode(values.tolist()) if _holds_text(values) else values
                for name, values in found.items()
            }

        return Frame(load)

    # --- pictures as numbers -----------------------------------------------------------------

    def metrics_histogram(
        self,
        metric: Names = ("gpu_busy_ratio", "cpu_busy_ratio"),
        *,
        node: Names | None = None,
        device: str | Sequence[str] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        bin_width: float = RATIO_BIN,
    ) -> distributions.MetricsHistogram:
        """How often each value of metrics was sampled, device by device, and of the mean over
        the devices (device `mean`) where nothing sampled that itself."""
        return distributions.metrics_histogram(
            self._metrics(node, start, end),
            names=chosen_names("metric", metric, METRIC_TYPES) or [],
            devices=[device] if isinstance(device, str) else None if device is None else [*device],
            bin_width=bin_width,
        )

    def step_histogram(
        self, *, phase: str | None = None, rank: int | None = None, bins: int = DURATION_BINS
    ) -> distributions.StepHistogram:
        """How long steps, or one phase of them, took how often."""
        chosen_names("phase", phase, PHASES)
        return distributions.step_histogram(self._ranks(rank), phase=phase, bins=bins)

    def heatmap(self, node: str | None = None, *, last: int = HEATMAP_TICKS) -> Heatmap:
        """What a node did, metric by metric, in its last sweeps of samples.

        Args:
            node: which; may be left out when there is one.
            last: sweeps.
        """
        if node is None and len(self.nodes) != 1:
            raise UsageError(f"Name one of the nodes: {', '.join(self.nodes) or 'there are none'}.")
        chosen_names("node", node, self.nodes)
        metrics = self._run.metrics[node or self.nodes[0]]
        return build_heatmap(metrics.load(*HEATMAP_METRICS), last)

    def step_timeline(self, *, rank: int | None = None) -> timelines.StepTimeline:
        """How long steps took, one after the other."""
        return timelines.step_timeline(self._ranks(rank))

    # --- statistics --------------------------------------------------------------------------

    def job_statistics(self) -> JobStatistics:
        """When the job began and ended, and how long it initialized, trained and finalized."""
        return job_statistics(self._run.ranks, self.start_ns, self.end_ns)

    def cost(self, usd_per_hour: float | str | Decimal, *, instances: int | None = None) -> JobCost:
        """What the job cost: `.usd`, and `.saving_ratio(other)` against another job.

        Args:
            usd_per_hour: what one machine costs; UsageError for what is no price.
            instances: how many were paid for; by default those that were watched.
        """
        try:
            price = parse_usd_per_hour(usd_per_hour)
        except (ValueError, ArithmeticError) as error:
            raise UsageError(
                f"{usd_per_hour!r} is not a price; give US dollars per hour."
            ) from error
        return JobCost(
            instance_count=len(self.nodes) if instances is None else instances,
            usd_per_hour=price,
            duration_ns=self.job_statistics().duration_ns,
        )

    def cost_breakdown(
        self,
        *,
        usd_per_hour: float | str | Decimal | None = None,
        instance_type: str | None = None,
        prices: str | Path | None = None,
        epochs: float | None = None,
        hours: float | None = None,
    ) -> Cost:
        """What `stepscope cost RUN` says: the cost of a step, an epoch, an hour and a million
        samples, what the suspect and each fix are worth, and whether smaller machines would do.

        Args:
            usd_per_hour: what one machine costs; by default what the run says.
            instance_type: what the cloud calls the machine, to look its price up.
            prices: a file of prices of your own.
            epochs, hours: project the cost to so many of them.
        """
        request = PriceRequest(
            usd_per_hour=None if usd_per_hour is None else str(usd_per_hour),
            instance_type=instance_type,
            prices=None if prices is None else Path(prices),
        )
        return report_cost(self._run, request, epochs=epochs, hours=hours)

    def phase_statistics(self, *, rank: int | None = None) -> Frame:
        """One row per rank and phase of the step: share, count, sum, mean, extremes, quantiles."""
        return tables.phase_statistics(self._ranks(rank))

    def span_statistics(self, by: str | Sequence[str] = ("kind", "name"), **which: Any) -> Frame:
        """One row per group of spans, by columns of `framework`; takes its arguments as well."""
        columns = [by] if isinstance(by, str) else list(by)
        chosen_names("column to group by", columns, tables.GROUPS)
        return tables.span_statistics(self.framework(**which).columns, columns)

    def usage(
        self,
        metric: str = "gpu_busy_ratio",
        *,
        low: float = 0.1,
        high: float = 0.9,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """One row per node and device: shares of its samples below, within and above a range."""
        chosen_names("metric", metric, METRIC_TYPES)
        return tables.usage(self._metrics(None, start, end), metric, low=low, high=high)

    def dataloader(self, *, rank: int | None = None) -> loading.DataLoaderAnalysis:
        """How batches were made and waited for."""
        self._known_rank(rank)
        spans = self._spans(
            kinds=LOADING_KINDS, phases=None, start=None, end=None, steps=None, rank=rank
        )
        return loading.analyse_loading(self._run, spans)

    def python_profile(
        self,
        *,
        phase: str | None = None,
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
        workers: bool = False,
        top: int = 0,
    ) -> Frame:
        """Where Python spent its time, function by function, from stack samples.

        Args:
            phase: only samples in this phase of the step, `other` among them.
            steps: only samples in steps from the first until before the second.
            rank: only this rank.
            workers: of the DataLoader's workers instead of the training thread.
            top: functions of each process, 0 for all.
        """
        chosen_names("phase", phase, PHASES)
        return functions.python_profile(
            self._run, self._ranks(rank), workers=workers, phase=phase, steps=steps, top=top
        )

    # --- against another run -----------------------------------------------------------------

    def compare(
        self,
        other: OpenRun | str | Path,
        *,
        again: Sequence[OpenRun | str | Path] = (),
        other_again: Sequence[OpenRun | str | Path] = (),
        fail_if: Sequence[str] = (),
        allow_different: Sequence[str] = (),
        strict: bool = False,
    ) -> Comparison:
        """What changed from this run to another: what `stepscope compare` shows.

        Args:
            other: a run that was opened, or the place of one.
            again, other_again: more runs of this program, and of the other. One of each stands for
                its program, and from three of each on noise is how they differ.
            fail_if: conditions such as "step_time>+5%"; `.gate` says whether they hold.
            allow_different: groups of the contract that may differ; see docs/compare.md.
            strict: changes within noise count as well.

        Raises:
            UsageError: a condition or group that there is not.
        """
        conditions = [parse_condition(each) for each in fail_if]
        allowed = allowed_groups(allow_different)
        programs = [
            [one._run if isinstance(one, OpenRun) else Run(open_run(one)) for one in runs]
            for runs in ((self, *again), (other, *other_again))
        ]
        return comparison(*programs, conditions=conditions, allowed=allowed, strict=strict)

    # --- files -------------------------------------------------------------------------------

    def export_timeline(
        self, path: str | Path, *, start: Moment | None = None, end: Moment | None = None
    ) -> ExportedTimeline:
        """Writes metrics as counters, spans and profiler windows on one axis of time, as a Chrome
        trace for Perfetto; compressed when the name ends in `.gz`."""
        return export_timeline(
            self._run, Path(path), start_ns=self._moment(start), end_ns=self._moment(end)
        )

    # --- choosing ----------------------------------------------------------------------------

    @cached_property
    def _borders(self) -> tuple[int, int]:
        return job_borders(self._run)

    def _moment(self, moment: Moment | None) -> int | None:
        return moment_ns(moment, self.start_ns)

    def _spans(
        self,
        *,
        kinds: list[str] | None,
        phases: list[str] | None,
        start: Moment | None,
        end: Moment | None,
        steps: tuple[int, int] | None,
        rank: int | None,
    ) -> Columns:
        return framework_columns(
            self._run,
            kinds=kinds,
            phases=phases,
            start_ns=self._moment(start),
            end_ns=self._moment(end),
            steps=steps,
            rank=rank,
        )

    def _known_rank(self, rank: int | None) -> None:
        if rank is not None and rank not in self.ranks:
            raise UsageError(
                f"There is no rank {rank}; there are {', '.join(map(str, self.ranks)) or 'none'}."
            )

    def _ranks(self, rank: int | None) -> list[Rank]:
        """Training processes with steps."""
        self._known_rank(rank)
        return [r for r in self._run.ranks if rank is None or r.process.rank == rank]

    def _metrics(
        self, node: Names | None, start: Moment | None, end: Moment | None
    ) -> dict[str, NodeMetrics]:
        names = chosen_names("node", node, self.nodes)
        first, last = self._moment(start), self._moment(end)
        chosen = {n: m for n, m in self._run.metrics.items() if names is None or n in names}
        return {name: metrics.between(first, last) for name, metrics in chosen.items()}


def _holds_text(values: Any) -> bool:
    return values.dtype == object and all(v is None or isinstance(v, str) for v in values)
