"""`stepscope run -- CMD`: launch a job under the profiler, print the verdict at the end.

The job starts before anything is imported that only its end needs: its user waits for that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from stepscope import budget, errors, masking, schema
from stepscope._version import __version__
from stepscope.capture.bootstrap import environment
from stepscope.cli.job.forking import Process, can_fork, fork_process
from stepscope.cli.job.interpreter import insert_shims
from stepscope.cli.job.job_run import (
    JobRun,
    check_command,
    conclude,
    explain_no_verdict,
    find_identity,
    import_verdict,
)
from stepscope.cli.job.launcher import (
    STOP_GRACE_S,
    Companion,
    Launcher,
    Stopping,
    await_monitor,
    exit_like,
)
from stepscope.cli.job.places import git_revision, make_run, make_spool, new_run_id, prepare_spool
from stepscope.cli.job.rule_options import RulePlan, rule_options
from stepscope.cli.job.staging import plan_staging, staging_option
from stepscope.cli.job.watching import StatusLine, Watching
from stepscope.cli.options import common, recording
from stepscope.cli.options.windows import ScheduleOptions, depth_options, schedule_options
from stepscope.cli.output import say
from stepscope.cli.startup import one_thread_in_numpy, working_directory
from stepscope.monitor import (
    DEFAULT_FLUSH_S,
    DEFAULT_STUCK_AFTER_S,
    FIRST_FLUSH_S,
    KINETO_LINK,
    Handshake,
    JobExit,
    MonitorConfig,
    StopSignal,
    WindowSettings,
    import_monitor,
    open_error_output,
    open_log,
    remove_spool,
    run_monitor,
    start_monitor,
)
from stepscope.spool import (
    MEMORY_HISTORY_VARIABLE,
    NAN_SEARCH_VARIABLE,
    NO_OUTPUT_VARIABLE,
    TENSORS_VARIABLE,
    TensorPlan,
)
from stepscope.watch import STOP_REQUEST_FILE

if TYPE_CHECKING:
    pass


class RunOptions(ScheduleOptions, frozen=True, kw_only=True):
    """Options of `stepscope run`."""

    out: str | None
    staging: Path | None
    job: str | None
    """Name of the job, if it has several launchers."""
    interval_ms: int
    monitor_budget: budget.Budget
    spool: str | None
    spool_limit: int
    """Bytes."""
    max_run_size: int | None
    """Bytes."""
    cpu_profiling_duration: float | None
    """Seconds."""
    file_rotation: float | None
    """Seconds."""
    window: str
    """auto, asked or off."""
    on_change: bool
    stuck_after: float
    """Seconds."""
    for_steps: int | None
    tensors: TensorPlan | None
    nan_search: str | None
    memory_history: int | None
    """Actions of the allocator of device memory."""
    rules: RulePlan | None
    """None with `--no-rules`."""
    allow_stop: bool
    usd_per_hour: str | None
    instance_type: str | None
    prices: Path | None
    keep_raw: bool
    share: bool
    try_fix: bool
    output: bool
    quiet: bool
    as_json: bool


@click.command(
    "run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    help="Launch CMD under the profiler and show its bottleneck at the end.\n\n"
    "CMD is the command as you would type it (python train.py, torchrun …); no line of the "
    "script changes. The exit status is that of CMD, except with --fail-on.",
)
@click.option(
    "--out",
    metavar="RUN",
    help="Run directory to create, or URL of a run in an object store (s3://…, gs://…, az://…). "
    "Default: stepscope-runs/<name>.",
)
@staging_option
@click.option(
    "--job",
    metavar="ID",
    help="Name of the job, the same on all nodes, whose launchers share one run. Default: what "
    "torchrun, Slurm, MPI or Kubernetes call it.",
)
@common.settings_option
@recording.interval_option
@recording.budget_option
@click.option("--spool", metavar="DIR", help="Local directory for the span logs.")
@click.option(
    "--spool-limit",
    callback=common.parsed_by(common.parse_spool_limit),
    default="256MiB",
    show_default=True,
    help="Size limit of the span logs; further records are dropped and counted.",
)
@click.option(
    "--max-run-size",
    callback=common.parsed_by(common.parse_run_size),
    metavar="SIZE",
    help="Size of the run, without detailed windows, from which its oldest records are rounded: "
    "counts, and sums of times, stay exact, single times and samples do not.  [default: no limit]",
)
@common.for_steps_option
@click.option(
    "--cpu-profiling-duration",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Record steps, annotations, scalars and stack samples for the first S seconds of the job "
    "only. Default: to its end.",
)
@click.option(
    "--file-rotation",
    type=click.FloatRange(min=1),
    metavar="S",
    help="Write new files of the run every S seconds, or when the spool is half full. Live views "
    "and rules see data that late.  [default: 5]",
)
@click.option(
    "--window",
    type=click.Choice(["auto", "asked", "off"]),
    default="auto",
    show_default=True,
    help="Record detailed windows: automatically, on request (asked), or never.",
)
@click.option(
    "--on-change/--no-on-change",
    default=True,
    help="Record a window on all ranks when the job becomes slower (with --window auto).",
)
@schedule_options
@depth_options
@recording.tensor_options
@recording.nan_options
@click.option(
    "--memory-history",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the latest N actions of PyTorch's allocator of device memory with their stacks, and "
    "write a memory snapshot when an allocation fails.",
)
@rule_options
@click.option(
    "--stuck-after",
    type=click.FloatRange(min=1),
    default=DEFAULT_STUCK_AFTER_S,
    show_default=True,
    metavar="S",
    help="Seconds without progress from which the job counts as stuck: no finished step or "
    "collective, no other record, and no CPU time. More if its own steps and pauses are long, and "
    "20 times as many before the first step.",
)
@click.option(
    "--allow-stop",
    is_flag=True,
    help="Allow the web UI on this machine, run by the same user, to stop the job.",
)
@common.price_options
@click.option("--keep-raw", is_flag=True, help="Keep the trace files of the profiler in RUN/raw/.")
@click.option(
    "--share",
    is_flag=True,
    help="Let other users read the run, as far as the umask allows. By default only you can.",
)
@click.option(
    "--try",
    "try_fix",
    is_flag=True,
    help="Measure the first fix that can be tried when the job has succeeded, as `stepscope try "
    "RUN` does.",
)
@click.option(
    "--output/--no-output",
    default=True,
    help="Keep the last 200 lines of the error output of a job that fails, with secrets masked.",
)
@click.option("--quiet", is_flag=True, help="Print only the verdict, no status line.")
@common.json_option("stepscope.diagnosis.Verdict", has_ids=True)
@click.argument("command", nargs=-1, required=True, metavar="-- CMD…", type=click.UNPROCESSED)
def command(command: tuple[str, ...], **values: Any) -> None:
    record_job(command, RunOptions(**values))


def record_job(command: Sequence[str], options: RunOptions) -> NoReturn:
    """Run a job under the profiler, print the verdict, and exit with the status of the job.

    Raises:
        UsageError: options contradict each other, or the command cannot be started.
    """
    windows = _plan_windows(options)
    check_command(command)
    pricing = common.recorded_prices(options.usd_per_hour, options.instance_type, options.prices)
    identity = find_identity(options.job, command)
    staging = plan_staging(options.out, options.staging, identity)
    run_id = new_run_id(command, identity)
    spool, problems = make_spool(
        options.spool,
        run_id,
        options.spool_limit,
        lambda spool: prepare_spool(spool, windows, options.cpu_profiling_duration),
    )
    info = schema.RunInfo(
        schema_version=schema.SCHEMA_VERSION,
        run_id=run_id,
        created_ns=time.time_ns(),
        command=masking.mask(command),
        working_directory=str(working_directory()),
        stepscope_version=__version__,
        git_revision=git_revision(),
        options=_recorded_options(options, windows, spool) | pricing,
        job=None if identity is None else identity.text,
    )
    directory = make_run(
        options.out,
        info,
        problems,
        spool=spool,
        staging=staging,
        is_shared=options.share and staging is None,
        identity=identity,
    )
    run = None
    if spool is not None and directory is not None:
        try:
            run = JobRun.register(directory, staging, identity)
        except OSError as error:
            problems.append(
                f"cannot register in {directory.path}: {errors.explain_os_error(error)}"
            )
            remove_spool(spool)
    if spool is None or run is None:
        say("The job is not recorded: " + "; ".join(problems))
        exit_like(_run_alone(command))
    for problem in problems:
        say(problem)
    exit_like(_Session(run, spool, options, windows).run(command))


def _plan_windows(options: RunOptions) -> WindowSettings:
    """Derive the settings of detailed windows.

    Raises:
        UsageError: options contradict each other.
    """
    planned = options.planned
    if planned and options.window == "off":
        raise errors.UsageError(
            "--window off conflicts with a scheduled window; remove one of them."
        )
    return WindowSettings(
        enabled=options.window != "off",
        automatic=options.window == "auto",
        on_change=options.on_change,
        schedules=planned,
        keep_raw=options.keep_raw,
    )


def _recorded_options(
    options: RunOptions, windows: WindowSettings, spool: Path | None
) -> dict[str, Any]:
    """Return the options to store in the run, except prices."""
    return {
        "interval_ms": options.interval_ms,
        "monitor_budget": msgspec.to_builtins(options.monitor_budget),
        "spool": str(spool) if spool else None,
        "spool_limit_bytes": options.spool_limit,
        "max_run_size_bytes": options.max_run_size,
        "cpu_profiling_duration_s": options.cpu_profiling_duration,
        "file_rotation_s": options.file_rotation,
        "window": options.window,
        "windows": msgspec.to_builtins(windows.schedules),
        "python_path": os.environ.get("PYTHONPATH"),
        "keep_raw": options.keep_raw,
        "allow_stop": options.allow_stop,
        "stuck_after_s": options.stuck_after,
        "planned_step_count": options.for_steps,
        "tensors": None if options.tensors is None else options.tensors.fields,
        "nan_search": options.nan_search,
        "memory_history": options.memory_history,
        "error_output": options.output,
        "rules": None if options.rules is None else options.rules.recorded,
    }


class _Session:
    """One job, its companion processes, and the messages about them."""

    def __init__(
        self, run: JobRun, spool: Path, options: RunOptions, windows: WindowSettings
    ) -> None:
        self._run = run
        self._spool = spool
        self._options = options
        self._log = open_log()
        self._error_output = open_error_output() if options.output else None
        link = spool / KINETO_LINK
        self._kineto = str(link.readlink()) if link.is_symlink() else None
        self._windows = msgspec.structs.replace(windows, kineto_directory=self._kineto)
        self._rules = options.rules
        self._budget, self._watch_budget = options.monitor_budget.divide()
        if self._rules is None:
            self._budget = options.monitor_budget
        self._stopping = Stopping(
            request_path=spool / STOP_REQUEST_FILE,
            grace_s=STOP_GRACE_S if options.rules is None else options.rules.stop_grace_s,
            by_people=options.allow_stop,
        )

    def run(self, command: Sequence[str]) -> JobExit:
        """Run the job to its end, print the verdict, and name the rules that fired."""
        status = StatusLine(self._run.location, None if self._options.quiet else sys.stderr)
        monitor = Companion(self._start_monitor, one_thread_in_numpy()(import_monitor))
        watching = (
            None
            if self._rules is None
            else Watching(self._run, self._rules, self._stopping.request_path, self._watch_budget)
        )
        launcher = Launcher(
            handshake=Handshake(self._spool),
            companions=[monitor] if watching is None else [monitor, watching.companion],
            stopping=self._stopping,
            on_tick=status.tick,
        )
        job_environment = {
            **os.environ,
            **environment(str(self._spool), self._options.spool_limit, self._kineto),
            **({} if self._options.output else {NO_OUTPUT_VARIABLE: "1"}),
            "STEPSCOPE_WINDOW": "on" if self._windows.enabled else "off",
            NAN_SEARCH_VARIABLE: self._options.nan_search or "",
            MEMORY_HISTORY_VARIABLE: str(self._options.memory_history or ""),
        }
        path = insert_shims(command, self._spool, os.environ.get("PATH"))
        if path is not None:
            job_environment["PATH"] = path
        if self._options.tensors is not None:
            job_environment[TENSORS_VARIABLE] = self._options.tensors.encode()
        try:
            job_exit = launcher.run(command, job_environment)
        except errors.UsageError:  # nothing ran: remove the files of stepscope only
            self._run.remove_unstarted()
            remove_spool(self._spool)
            raise
        finally:
            status.clear()
        try:
            return self._finish(command, job_exit, launcher.stop, monitor, watching)
        except Exception as error:  # noqa: BLE001 - the job's exit status comes first
            # Such as modules of another version, after an upgrade while the job ran.
            explain_no_verdict(error, self._run.name)
            return job_exit

    def _finish(
        self,
        command: Sequence[str],
        job_exit: JobExit,
        stop: StopSignal | None,
        monitor: Companion,
        watching: Watching | None,
    ) -> JobExit:
        """Wait for the last records, and report."""
        if watching is not None:  # while the monitor stores the last records
            watching.companion.prepare()
        if monitor.is_running:
            import_verdict()
        complete = await_monitor(monitor.process, self._log, self._spool, self._run.name)
        uploaded = self._run.upload_records(complete)
        records = self._run.find_records(uploaded)
        try:
            if self._run.has_turn(complete, records, quiet=self._options.quiet):
                if watching is not None:
                    watching.hurry()
                self._report(command, job_exit, complete, records)
                if watching is not None:
                    job_exit = watching.conclude(job_exit, complete=complete)
            elif watching is not None:
                watching.end()
            if stop is not None and stop.is_requested:
                say(stop.reason)
        finally:
            if complete or (
                # The monitor was left running, and ended while this process seemed to wait.
                complete is False and monitor.process is not None and monitor.process.poll() == 0
            ):
                remove_spool(self._spool)
            is_read = watching is not None and watching.is_left_running
            self._run.conclude(complete, uploaded, is_read=is_read)
        return job_exit

    def _report(
        self, command: Sequence[str], job_exit: JobExit, complete: bool | None, location: str | Path
    ) -> None:
        """Print the verdict of the run at a location, and try a fix."""
        is_tried = self._options.try_fix and bool(complete) and job_exit.exit_code == 0
        if is_tried:
            from stepscope.cli.commands.try_changes import try_first_fix

        if is_tried and self._options.as_json:  # the verdict has the outcome
            try_first_fix(self._run.location, command, None)
        if complete is not None:
            conclude(location, as_json=self._options.as_json, shown=self._run.name)
        if is_tried and not self._options.as_json:
            from stepscope.cli.text import console

            try_first_fix(self._run.location, command, console(stderr=True))

    def _start_monitor(self, job_pid: int) -> Process | None:
        rotation_s = self._options.file_rotation
        flush_s = DEFAULT_FLUSH_S if self._rules is None else self._rules.flush_s
        config = MonitorConfig(
            run=str(self._run.location),
            spool=str(self._spool),
            spool_limit_bytes=self._options.spool_limit,
            job_pid=job_pid,
            launcher_pid=os.getpid(),
            interval_ms=self._options.interval_ms,
            flush_s=rotation_s or flush_s,
            first_flush_s=rotation_s or FIRST_FLUSH_S,
            max_run_bytes=self._options.max_run_size,
            budget=self._budget,
            windows=self._windows,
            launcher=self._run.launcher,
            is_staged=self._run.staging is not None,
            stuck_after_s=self._options.stuck_after,
            error_output=self._error_output,
        )
        try:
            return self._fork_monitor(config) or start_monitor(config, self._log)
        except OSError as error:
            say(f"Cannot start the monitor: {error}.")
            return None

    def _fork_monitor(self, config: MonitorConfig) -> Process | None:
        """Fork the monitor; None where that is not possible."""
        if not can_fork():
            return None
        words = ("stepscope.monitor", config.run)
        return fork_process(words, lambda: run_monitor(config), self._log)


def _run_alone(command: Sequence[str]) -> JobExit:
    """Run the job without recording it: a failure of stepscope must not stop it."""
    return Launcher().run(command, os.environ)
