"""An open run: data and analyses of one run for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from stepscope.access import distributions, tables, timelines
from stepscope.access.selection import Moment, Names, chosen_names, moment_ns
from stepscope.analysis import (
    DURATION_BINS,
    HEATMAP_METRICS,
    HEATMAP_TICKS,
    PHASES,
    RATIO_BIN,
    Heatmap,
    build_heatmap,
)
from stepscope.comparison import (
    Comparison,
    compare_runs,
    parse_allowed_groups,
    parse_condition,
)
from stepscope.cost import Cost, JobCost, PriceRequest, parse_usd_per_hour, report_cost
from stepscope.diagnosis import Verdict, diagnose
from stepscope.errors import UsageError
from stepscope.exporters import ExportedTimeline, export_timeline
from stepscope.run import (
    DataLoaderAnalysis,
    Frame,
    JobStatistics,
    NodeMetrics,
    Rank,
    Run,
    analyse_loading,
    frame_of_query,
    frame_of_table,
    job_borders,
    job_statistics,
    list_phases,
    open_run,
    read_job_samples,
    read_job_spans,
)
from stepscope.schema import METRIC_TYPES, SPAN_KINDS, TABLES, RunInfo
from stepscope.views.profiling_report import Report, choose_report_rules, make_report


class OpenRun:
    """An open run; data is read on first use.

    Times are integer nanoseconds; ranges include their start and exclude their end. Data that was
    not recorded is missing, never zero: frames then have no rows, or a missing value.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"OpenRun({self.info.run_id!r})"

    @property
    def info(self) -> RunInfo:
        """Content of `run.json`."""
        return self._run.reader.info

    @property
    def start_ns(self) -> int:
        """Start of the job in nanoseconds since 1970; where unknown, the creation of the run."""
        return self._borders[0]

    @property
    def end_ns(self) -> int:
        """End of the job, or its last heartbeat."""
        return self._borders[1]

    @property
    def nodes(self) -> list[str]:
        """Names of the sampled nodes."""
        return sorted(self._run.nodes)

    @property
    def ranks(self) -> list[int]:
        """Ranks of the job, empty outside a distributed one."""
        return sorted({p.rank for p in self._run.processes if p.rank is not None})

    @property
    def phases(self) -> list[str]:
        """Phases of the spans of the run."""
        return list_phases(self._run.reader)

    @property
    def damage(self) -> list[str]:
        """Files that could not be read so far, one sentence each."""
        return self._run.reader.damage

    def verdict(self) -> Verdict:
        """Diagnose the run."""
        return diagnose(self._run)

    def report(
        self,
        rules: Sequence[str] = (),
        *,
        config: str | Path | None = None,
        settings: Sequence[str] = (),
    ) -> Report:
        """Make the report of `stepscope report RUN`, section by section.

        Args:
            rules: names of rules, or `path.py:MyRule`; none for all of them.
            config: a TOML or JSON file with a table of parameters per rule.
            settings: `Name.parameter=value`; they win over the file.
        """
        selected_rules = choose_report_rules(
            rules, config=None if config is None else Path(config), settings=settings
        )
        return make_report(self._run, selected_rules)

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
        start: Moment | None = None,
        end: Moment | None = None,
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
    ) -> Frame:
        """Return spans of the job's processes that overlap a range, in order of start.

        Columns: rank, step, phase, kind, name, start_ns, end_ns, duration_ns, depth, flags, value,
        labels, node, process, role, thread. Kinds, flags and values are those of the table
        `spans`; `run.job_spans` defines phase and step. The duration of an aggregate, such as all
        calls of a transform for a batch, is the sum of their times.

        Args:
            kind, phase: names; UsageError for an unknown one.
            start, end: the range; None for an open one.
            steps: first step and the step after the last, by the numbers of `step_timeline`.
            rank: only this rank and the workers of its DataLoaders.
        """
        kinds = chosen_names("kind of span", kind, SPAN_KINDS)
        phases = None if phase is None else chosen_names("phase", phase, self.phases)
        self._check_rank(rank)
        return Frame(
            lambda: read_job_spans(
                self._run,
                kinds=kinds,
                phases=phases,
                start_ns=self._moment(start),
                end_ns=self._moment(end),
                steps=steps,
                rank=rank,
            )
        )

    def table(self, name: str) -> Frame:
        """Return a table of the run; docs/run-directory.md describes them."""
        chosen_names("table", name, TABLES)
        return frame_of_table(self._run.reader, name)

    def sql(self, query: str, parameters: Sequence[object] = ()) -> Frame:
        """Run a DuckDB query over the tables of the run."""
        return frame_of_query(self._run.reader, query, parameters)

    # --- histograms and heat maps -----------------------------------------------------------------

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
        """Build histograms of metrics by device, and of the mean over devices (device `mean`) for
        metrics that are not sampled per node."""
        return distributions.metrics_histogram(
            self._metrics(node, start, end),
            names=chosen_names("metric", metric, METRIC_TYPES) or [],
            devices=[device] if isinstance(device, str) else None if device is None else [*device],
            bin_width=bin_width,
        )

    def step_histogram(
        self, *, phase: str | None = None, rank: int | None = None, bins: int = DURATION_BINS
    ) -> distributions.StepHistogram:
        """Build histograms of the durations of steps or of one phase."""
        chosen_names("phase", phase, PHASES)
        return distributions.step_histogram(self._ranks(rank), phase=phase, bins=bins)

    def heatmap(self, node: str | None = None, *, last: int = HEATMAP_TICKS) -> Heatmap:
        """Build a heat map of the metrics of nodes over their last sampling ticks.

        Args:
            node: name; all nodes by default.
            last: count of sampling ticks.
        """
        if not self.nodes:
            raise UsageError("No node was monitored: run the job with `stepscope run`.")
        names = chosen_names("node", node, self.nodes)
        samples = {
            name: self._run.metrics[name].load(*HEATMAP_METRICS)
            for name in (self.nodes if names is None else names)
        }
        return build_heatmap(samples, last)

    def step_timeline(self, *, rank: int | None = None) -> timelines.StepTimeline:
        """Return the durations of steps over time."""
        return timelines.step_timeline(self._ranks(rank))

    # --- statistics --------------------------------------------------------------------------

    def job_statistics(self) -> JobStatistics:
        """Return start, end, and the times of initialization, training and finalization."""
        return job_statistics(self._run)

    def cost(self, usd_per_hour: float | str | Decimal, *, instances: int | None = None) -> JobCost:
        """Return the cost of the job: `.usd`, and `.saving_ratio(other)` against another job.

        Args:
            usd_per_hour: price of one machine; UsageError for an invalid one.
            instances: count of paid machines; by default the recorded nodes.
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
        """Return the figures of `stepscope cost RUN`.

        Cost of a step, an epoch, an hour and a million samples, potential savings, right-sizing.

        Args:
            usd_per_hour: price of one machine; by default the price recorded in the run.
            instance_type: cloud instance type, used to look up the price.
            prices: a file of custom prices.
            epochs, hours: project the cost to this many.
        """
        request = PriceRequest(
            usd_per_hour=None if usd_per_hour is None else str(usd_per_hour),
            instance_type=instance_type,
            prices=None if prices is None else Path(prices),
        )
        return report_cost(self._run, request, epochs=epochs, hours=hours)

    def phase_statistics(self, *, rank: int | None = None) -> Frame:
        """Return share, count, sum, mean, extremes and quantiles per rank and phase of the step."""
        return tables.phase_statistics(self._ranks(rank))

    def span_statistics(self, by: str | Sequence[str] = ("kind", "name"), **filters: Any) -> Frame:
        """Return one row per group of spans, by columns of `framework`; accepts its arguments."""
        columns = [by] if isinstance(by, str) else list(by)
        chosen_names("column to group by", columns, tables.GROUPS)
        return tables.span_statistics(self.framework(**filters).columns, columns)

    def usage(
        self,
        metric: str = "gpu_busy_ratio",
        *,
        low: float = 0.1,
        high: float = 0.9,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """Return shares of samples below, within and above a range: one row per node and device."""
        chosen_names("metric", metric, METRIC_TYPES)
        return tables.usage(self._metrics(None, start, end), metric, low=low, high=high)

    def dataloader(self, *, rank: int | None = None) -> DataLoaderAnalysis:
        """Analyse how batches were created and waited for."""
        self._check_rank(rank)
        return analyse_loading(self._run, rank)

    def python_profile(
        self,
        *,
        phase: str | None = None,
        steps: tuple[int, int] | None = None,
        rank: int | None = None,
        workers: bool = False,
        top: int = 0,
    ) -> Frame:
        """Profile Python functions, from stack samples or imported profiles.

        Args:
            phase: only samples in this phase of the step, `other` among them. Imported profiles
                do not state phases, and are left out.
            steps: first step and the step after the last. Of imported profiles, those that start
                in these steps count.
            rank: only this rank.
            workers: profile the DataLoader workers instead of the training thread.
            top: count of functions per process, 0 for all.
        """
        chosen_names("phase", phase, PHASES)
        return tables.python_profile(
            self._run, self._ranks(rank), workers=workers, phase=phase, steps=steps, top=top
        )

    # --- comparison -----------------------------------------------------------------

    def compare(
        self,
        target: OpenRun | str | Path,
        *,
        again: Sequence[OpenRun | str | Path] = (),
        target_again: Sequence[OpenRun | str | Path] = (),
        fail_if: Sequence[str] = (),
        allow_different: Sequence[str] = (),
        strict: bool = False,
    ) -> Comparison:
        """Compare this run to another, as `stepscope compare` does.

        Args:
            target: an open run, or the path or URL of one.
            again, target_again: more runs of each program. One of each represents its program; with
                three or more of each, noise is the difference between them.
            fail_if: conditions such as "step_time>+5%"; `.gate` has the result.
            allow_different: groups of the contract that may differ; see docs/compare.md.
            strict: changes within noise count as well.

        Raises:
            UsageError: an unknown condition or group.
        """
        conditions = [parse_condition(text) for text in fail_if]
        allowed = parse_allowed_groups(allow_different)
        programs = [
            [run._run if isinstance(run, OpenRun) else open_run(run) for run in runs]
            for runs in ((self, *again), (target, *target_again))
        ]
        return compare_runs(*programs, conditions=conditions, allowed=allowed, strict=strict)

    # --- files -------------------------------------------------------------------------------

    def export_timeline(
        self, path: str | Path, *, start: Moment | None = None, end: Moment | None = None
    ) -> ExportedTimeline:
        """Write metrics, spans and windows on one time axis as a Chrome trace for Perfetto.

        The file is compressed if its name ends in `.gz`.
        """
        return export_timeline(
            self._run, Path(path), start_ns=self._moment(start), end_ns=self._moment(end)
        )

    # --- selection ----------------------------------------------------------------------------

    @cached_property
    def _borders(self) -> tuple[int, int]:
        return job_borders(self._run)

    def _moment(self, moment: Moment | None) -> int | None:
        return moment_ns(moment, self.start_ns)

    def _check_rank(self, rank: int | None) -> None:
        if rank is not None and rank not in self.ranks:
            raise UsageError(
                f"There is no rank {rank}; there are {', '.join(map(str, self.ranks)) or 'none'}."
            )

    def _ranks(self, rank: int | None) -> list[Rank]:
        """Return training processes with steps."""
        self._check_rank(rank)
        return [r for r in self._run.ranks if rank is None or r.process.rank == rank]

    def _metrics(
        self, node: Names | None, start: Moment | None, end: Moment | None
    ) -> dict[str, NodeMetrics]:
        names = chosen_names("node", node, self.nodes)
        first, last = self._moment(start), self._moment(end)
        selected = {n: m for n, m in self._run.metrics.items() if names is None or n in names}
        return {name: metrics.between(first, last) for name, metrics in selected.items()}
