"""`python -m stepscope.monitor CONFIG-AS-JSON`: started by the launcher, not by users."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from stepscope import errors, job_environment, masking, schema, spool, store
from stepscope._version import __version__
from stepscope.cores import collect_seldom
from stepscope.monitor.config import Handshake, MonitorConfig, NewRun, remove_spool
from stepscope.monitor.registration import check_join, register_launcher
from stepscope.monitor.uploading import Uploader
from stepscope.monitor.windows.kineto_peer import open_peer

NICENESS = 10
"""The job has priority."""


def main() -> None:
    """Run the monitor of the command line."""
    collect_seldom()
    import_monitor()
    run_monitor(msgspec.json.decode(sys.argv[1], type=MonitorConfig))


def import_monitor() -> None:
    """Import what a monitor needs, and open its database."""
    import numpy.ma  # noqa: F401 - by which DuckDB returns nulls

    import stepscope.monitor.loop  # noqa: F401
    from stepscope.schema import TABLES  # noqa: F401
    from stepscope.store import RunWriter, open_run  # noqa: F401

    store.prepare_database()


def run_monitor(config: MonitorConfig) -> None:
    """Run one monitor in this process.

    Raises:
        SystemExit: the run or the spool cannot be used.
    """
    from stepscope.monitor.loop import Monitor

    # Before the priority is lowered: libkineto waits 50 ms for a response.
    peer = open_peer(config.windows.kineto_directory)
    os.nice(NICENESS)
    # The launcher handles its signals one by one and has them blocked, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        if config.create is not None:
            config = _make_run(config, config.create)
        uploader = _start_uploader(config)
        finished = Monitor(config, peer, uploader).run()
    except (OSError, errors.RunExistsError) as error:  # the launcher shows the last line of the log
        sys.exit(errors.explain_os_error(error))
    launcher_waits = (
        config.launcher_pid is not None
        and spool.process_start_ticks(config.launcher_pid) is not None
        and not Handshake(Path(config.spool)).is_detached()
    )
    if finished and not launcher_waits:
        remove_spool(Path(config.spool))
    if uploader is not None:
        if launcher_waits:  # it has a verdict to add
            uploader.stop()
        else:
            uploader.finish()


def _start_uploader(config: MonitorConfig) -> Uploader | None:
    """Start to upload the run, if it is for an object store."""
    if not config.is_staged:
        return None
    uploader = Uploader(Path(config.run), limit_bytes=config.spool_limit_bytes)
    uploader.start()
    return uploader


def _make_run(config: MonitorConfig, new: NewRun) -> MonitorConfig:
    """Create a run, or join that of the job; return the configuration with the launcher, if the run
    has several.

    Raises:
        RunExistsError: there is a run that cannot be joined.
        OSError: it cannot be written.
    """
    identity = None if new.job is None else job_environment.JobIdentity("", new.job, new.is_unique)
    try:
        store.create_run(config.run, _run_info(config, new))
    except errors.RunExistsError:
        check_join(config.run, identity)
    if identity is None:
        return config
    registration = register_launcher(Path(config.run), config.job_pid)
    return msgspec.structs.replace(config, launcher=registration.launcher)


def _run_info(config: MonitorConfig, new: NewRun) -> schema.RunInfo:
    return schema.RunInfo(
        schema_version=schema.SCHEMA_VERSION,
        run_id=new.run_id,
        created_ns=time.time_ns(),
        command=masking.mask(new.command),
        working_directory=new.working_directory,
        stepscope_version=__version__,
        job=new.job,
        options={
            "interval_ms": config.interval_ms,
            "spool": config.spool,
            "spool_limit_bytes": config.spool_limit_bytes,
            "windows": msgspec.to_builtins(config.windows.schedules),
        },
    )


if __name__ == "__main__":
    main()
