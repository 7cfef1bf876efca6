"""An open run: data and analyses of one run for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from stepscope import analysis, comparison, diagnosis, errors, exporters, rule_feed, schema, views
from stepscope.access import profiles, tables, timeline_chart
from stepscope.access.profiles import PythonProfile, render_overview
from stepscope.access.recorded import Moment, Names, chosen_names
from stepscope.access.run_frames import RunFrames
from stepscope.access.timeline_chart import MAX_BINS, TIMELINE_METRICS, TimelineChart
from stepscope.cost import Cost, JobCost, PriceRequest, parse_usd_per_hour, report_cost
from stepscope.exporters import export_timeline
from stepscope.run import (
    PARTS,
    PERIODS,
    PROFILE_BORDERS,
    PROFILE_MODES,
    TRAINING_PHASES,
    DataLoaderAnalysis,
    Frame,
    JobStatistics,
    JobTime,
    NodeMemory,
    Period,
    ProfileSelection,
    aggregate_samples,
    analyse_loading,
    choose_bins,
    job_statistics,
    number_ranks,
    open_run,
    read_host_memory,
    read_job_time,
    run_name,
)
from stepscope.views.profiling_report import Report, choose_report_rules, make_report


class OpenRun(RunFrames):
    """An open run; data is read on first use.

    Times are integer nanoseconds; ranges include their start and exclude their end. Data that was
    not recorded is missing, never zero: frames then have no rows, or a missing value.
    """

    def _repr_html_(self) -> str:
        reader = self._run.reader
        name = run_name(reader.location, reader.info.run_id)
        return render_overview(views.show_overview(self._run), name)

    def verdict(self) -> diagnosis.Verdict:
        """Diagnose the run."""
        return rule_feed.make_verdict(self._run)

    def report(
        self,
        rules: Sequence[str] = (),
        *,
        config: str | Path | None = None,
        settings: Sequence[str] = (),
    ) -> Report:
        """Make the report of `stepscope report RUN -o report.html`, section by section.

        Args:
            rules: names of rules, or `path.py:MyRule`; none for all of them.
            config: a TOML or JSON file with a table of parameters per rule.
            settings: `Name.parameter=value`; they win over the file.
        """
        selected_rules = choose_report_rules(
            rules, config=None if config is None else Path(config), settings=settings
        )
        return make_report(self._run, selected_rules)

    # --- histograms and heat maps -----------------------------------------------------------------

    def metrics_histogram(
        self,
        metric: Names = ("gpu_busy_ratio", "cpu_busy_ratio"),
        *,
        node: Names | None = None,
        device: str | Sequence[str] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        bin_width: float = analysis.RATIO_BIN,
    ) -> tables.MetricsHistogram:
        """Build histograms of metrics by device, and of the mean over devices (device `mean`) for
        metrics that are not sampled per node."""
        return tables.metrics_histogram(
            self._metrics(node, start, end),
            names=chosen_names("metric", metric, schema.METRIC_TYPES) or [],
            devices=[device] if isinstance(device, str) else None if device is None else [*device],
            bin_width=bin_width,
        )

    def step_histogram(
        self,
        *,
        phase: str | None = None,
        rank: int | None = None,
        bins: int = analysis.DURATION_BINS,
    ) -> tables.StepHistogram:
        """Build histograms of the durations of steps or of one phase."""
        chosen_names("phase", phase, analysis.PHASES)
        return tables.step_histogram(self._ranks(rank), phase=phase, bins=bins)

    def heatmap(
        self, node: str | None = None, *, last: int = analysis.HEATMAP_TICKS
    ) -> analysis.Heatmap:
        """Build a heat map of the metrics of nodes over their last sampling ticks.

        Args:
            node: name; all nodes by default.
            last: count of sampling ticks.
        """
        if not self.nodes:
            raise errors.UsageError(
                "No node was monitored: run the job with `stepscope run -- CMD`."
            )
        names = chosen_names("node", node, self.nodes)
        samples = {
            name: self._run.metrics[name].load(*analysis.HEATMAP_METRICS)
            for name in (self.nodes if names is None else names)
        }
        return analysis.build_heatmap(samples, last)

    def step_timeline(self, *, rank: int | None = None) -> timeline_chart.StepTimeline:
        """Return the durations of steps over time."""
        return timeline_chart.step_timeline(self._ranks(rank))

    def timeline(
        self,
        metric: Names = TIMELINE_METRICS,
        *,
        node: Names | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> TimelineChart:
        """Show metrics over time in a notebook; a selected range returns its events.

        Dragging over the chart selects a range (`pip install 'stepscope[notebook]'`), `.select`
        does the same without a notebook. `.events()`, `.trace_events()` and `.system()` return the
        spans, events of traces and samples in it.

        Args:
            metric: one or more metrics; those that were not sampled are omitted.
            node: names.
            start, end: the range.

        Raises:
            UsageError: no node was monitored in this range.
        """
        names = chosen_names("metric", metric, schema.METRIC_TYPES) or []
        nodes = chosen_names("node", node, self.nodes) or []
        first, last = Period.of(self._moment(start), self._moment(end))
        bins = choose_bins(self._run, MAX_BINS, within=(first, last))
        if bins is None:
            raise errors.UsageError("No node was monitored in this range.")
        return TimelineChart(
            self, bins, aggregate_samples(self._run.reader, bins, names, nodes=nodes)
        )

    # --- statistics --------------------------------------------------------------------------

    def job_statistics(self) -> JobStatistics:
        """Return start, end, and the times of initialization, training and finalization."""
        return job_statistics(self._run)

    def job_time(self) -> JobTime:
        """Return the division of the whole job into classes of time, by rank; see
        `job_time_intervals` for a frame of its pieces."""
        return read_job_time(self._run)

    def job_time_intervals(self, *, rank: int | None = None) -> Frame:
        """Return the pieces of the job's time: rank, key (of the class), start_ns, end_ns,
        duration_ns. Those of a rank divide the job.

        Args:
            rank: only this rank.
        """
        number_ranks(self._run).require(rank)
        return tables.job_time_intervals(self.job_time(), rank)

    def host_memory(self) -> list[NodeMemory]:
        """Return the host memory of the job by node: growth, limit, forecast, processes; see
        `host_memory_processes` for a frame of the processes."""
        return read_host_memory(self._run)

    def host_memory_processes(self) -> Frame:
        """Return the processes by memory: node, name, pid, anonymous_bytes, peak_bytes,
        private_bytes, growth_bytes_per_hour (null unless the process grows)."""
        return tables.host_memory_processes(self.host_memory())

    def cost(self, usd_per_hour: float | str | Decimal, *, instances: int | None = None) -> JobCost:
        """Return the cost of the job: `.usd`, and `.saving_ratio(other)` against another job.

        Args:
            usd_per_hour: price of one machine; UsageError for an invalid one.
            instances: count of paid machines; by default the recorded nodes.
        """
        try:
            price = parse_usd_per_hour(usd_per_hour)
        except (ValueError, ArithmeticError) as error:
            raise errors.UsageError(
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
        metric: str | None = None,
        *,
        low: float = 0.1,
        high: float = 0.9,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """Return shares of samples below, within and above a range: one row per node and device.

        Args:
            metric: a metric; by default `gpu_busy_ratio`, and `core_busy_ratio` of a node without
                GPUs.
        """
        chosen_names("metric", metric, schema.METRIC_TYPES)
        return tables.usage(self._metrics(None, start, end), metric, low=low, high=high)

    def utilization(
        self,
        metric: Names = ("gpu_busy_ratio", "cpu_busy_ratio"),
        *,
        phase: Names | None = PERIODS,
        node: Names | None = None,
        rank: int | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
    ) -> Frame:
        """Return the distribution of metrics by node, device and phase of the job.

        Columns: node, metric, unit, device, phase, count, mean, standard_deviation, min, p50, p95,
        p99, max. The device `mean` is the mean over devices. A sample counts in the phases in which
        it was taken, but metrics such as `gpu_busy_ratio` cover the time since the sample before:
        phases that are shorter than the sampling interval get shares of their neighbours.

        Args:
            metric: one or more metrics.
            phase: one or more of `initialization`, `training` and `finalization` of the job; the
                modes `train`, `eval` and `predict`; and the phases of a step, such as `forward`. On
                a node with several ranks, a phase is the time in which any of them is in it. None
                for all samples together.
            rank: only the phases of this rank.
        """
        phases = chosen_names("phase", phase, TRAINING_PHASES)
        return tables.utilization(
            self._metrics(node, start, end),
            chosen_names("metric", metric, schema.METRIC_TYPES) or [],
            phases,
            ranks=self._ranks(rank),
            job=self.job_statistics(),
        )

    def phase_intervals(
        self, phase: Names = PERIODS, *, part: Names = "inside", rank: int | None = None
    ) -> Frame:
        """Return when the phases of the job were: rank, phase, part, start_ns, end_ns, duration_ns.

        The phases of a step divide the mode `train`, which is the time of the steps without
        evaluation. Where a device was timed, its phases have priority over those of the host.

        Args:
            phase: as of `utilization`.
            part: `inside` for the time of a phase; `before` its first interval, `between` two and
                `after` the last one for the rest of the job.
            rank: only this rank. `initialization`, `training` and `finalization` are those of all
                ranks together, and have no rank.
        """
        return tables.phase_intervals(
            self._ranks(rank),
            self.job_statistics(),
            chosen_names("phase", phase, TRAINING_PHASES) or [],
            parts=chosen_names("part", part, PARTS) or [],
        )

    def dataloader(self, *, rank: int | None = None) -> DataLoaderAnalysis:
        """Analyse how batches were created and waited for."""
        number_ranks(self._run).require(rank)
        return analyse_loading(self._run, rank)

    def python_profile(
        self,
        *,
        period: str | None = None,
        modes: str | tuple[str, str] | None = None,
        phase: str | None = None,
        borders: tuple[str, str] | None = None,
        steps: tuple[int, int] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        rank: int | None = None,
        workers: bool = False,
        merged: bool = False,
        order: str = "own",
        top: int = 0,
    ) -> PythonProfile:
        """Profile Python functions, from stack samples or imported profiles.

        Columns: rank, process, function, file, library, own_ratio, total_ratio, own_ns, total_ns,
        own_count and total_count (samples), profiler, calls, primitive_calls. Shares are of the
        selected samples of the process, or of the own time of all functions in its selected
        profiles. Samples state no calls, and imported profiles no samples: these are missing.

        Args:
            period: `initialization`: before the first work of the training; `training`; or
                `finalization`: after its last work. Of imported profiles, those that start before
                step zero, those that end after the job closed its hook, and those in between.
            modes: a mode, or those at start and end: ("train", "eval") is the time after training
                and before evaluation. `train`, `eval`, `predict`, `global`, `pre_step_zero`,
                `post_close`.
            phase: only samples in this phase of the step, `other` among them. Imported profiles
                do not state phases, and are left out.
            borders: only imported profiles between two moments, such as ("stepstart",
                "forwardpassend"); the others are `start`, `stepend` and `end`.
            steps: first step and the step after the last. Of imported profiles, those that start
                in these steps count.
            start, end: the range of the samples, and of the starts of imported profiles.
            rank: only this rank.
            workers: profile the DataLoader workers instead of the training thread.
            merged: one row per function of all processes together.
            order: `own` or `total` for time, `calls` or `primitive_calls`; highest first.
            top: count of functions per process, 0 for all.
        """
        chosen_names("phase", phase, analysis.PHASES)
        chosen_names("period", period, PERIODS)
        chosen_names("order", order, profiles.ORDERS)
        pair = (modes, modes) if isinstance(modes, str) else modes
        chosen_names("mode", pair, PROFILE_MODES)
        chosen_names("border of a profile", borders, PROFILE_BORDERS)
        return PythonProfile(
            self._run,
            profiles.ProfileQuery(
                ranks=self._ranks(rank),
                selection=ProfileSelection(
                    period=period,
                    modes=pair,
                    borders=borders,
                    extent=Period.of(self._moment(start), self._moment(end)),
                ),
                rank=rank,
                workers=workers,
                phase=phase,
                steps=steps,
                merged=merged,
                order=order,
                top=top,
            ),
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
    ) -> comparison.Comparison:
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
        conditions = [comparison.parse_condition(text) for text in fail_if]
        allowed = comparison.parse_allowed_groups(allow_different)
        programs = [
            [run._run if isinstance(run, OpenRun) else open_run(run) for run in runs]
            for runs in ((self, *again), (target, *target_again))
        ]
        return comparison.compare_runs(
            *programs, conditions=conditions, allowed=allowed, strict=strict
        )

    # --- files -------------------------------------------------------------------------------

    def export_timeline(
        self,
        path: str | Path,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        steps: tuple[int, int] | None = None,
        sources: str | Sequence[str] = exporters.SOURCES,
        suffix: str | Sequence[str] | None = None,
        gpu_below: float = exporters.GPU_BELOW_RATIO,
    ) -> exporters.ExportedTimeline:
        """Write metrics, spans and windows on one time axis as a Chrome trace for Perfetto.

        The file is compressed if its name ends in `.gz`.

        Args:
            path: the file.
            start, end: the range of samples and spans; traces that overlap it are written whole.
            steps: first step and the step after the last, instead of a range: the time from the
                start of the first on any rank to the end of the last on any.
            sources: one or more of `system` (samples), `framework` (spans), `communication` (spans
                of collectives), `traces`, and `bottlenecks`: marks of GPUs that are hardly used,
                and of the findings of rules while the job ran.
            suffix: ends of names of imported files: spans and traces of other files are left out.
            gpu_below: share of time in which a GPU is busy, below which it is marked.

        Raises:
            UsageError: no rank has these steps, or a name is unknown.
        """
        start_ns, end_ns = self._moment(start), self._moment(end)
        if steps is not None:
            if start_ns is not None or end_ns is not None:
                raise errors.UsageError("Pass steps, or start and end, not both.")
            start_ns, end_ns = exporters.find_step_range(self._run, steps)
        content = exporters.choose_content(
            self._run,
            sources=[sources] if isinstance(sources, str) else sources,
            suffixes=[suffix] if isinstance(suffix, str) else suffix,
            gpu_below_ratio=gpu_below,
        )
        return export_timeline(
            self._run, Path(path), start_ns=start_ns, end_ns=end_ns, content=content
        )
