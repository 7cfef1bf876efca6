"""`stepscope doctor`: data that can be captured on this machine, and faults that cost data."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata

import click
import msgspec

from stepscope.capture.kineto_daemon import make_directory
from stepscope.cli.environment import Fault, explain_missing_stacks, find_faults
from stepscope.cli.options import json_option
from stepscope.cli.output import print_json
from stepscope.cli.places import SHARED_MEMORY, spool_bases
from stepscope.cli.text import console
from stepscope.importers import trace_decoder
from stepscope.monitor import DEFAULT_SPOOL_LIMIT_BYTES, node_info
from stepscope.monitor.samplers import JobTree, build_samplers
from stepscope.monitor.windows import open_peer
from stepscope.quantities import memory, number


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of data, and its availability on this machine."""

    name: str
    available: bool
    detail: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    python: str
    checks: list[Check]
    faults: list[Fault]
    """Faults of the environment, as a job started here and now would have it."""


@click.command(
    "doctor",
    help="Check what can be captured on this machine, and which faults of the environment (full "
    "disks, limits, permissions) would cost data.",
)
@json_option("stepscope.cli.doctor.Examination")
def command(as_json: bool) -> None:
    examination = examine()
    if as_json:
        print_json(examination)
        return
    out = console()
    for check in examination.checks:
        mark = "[green]yes[/green]" if check.available else "[yellow]no [/yellow]"
        out.print(f"{mark}  {check.name:<22}{check.detail}")
    if not examination.faults:
        out.print("\nNo faults of the environment were found.")
        return
    out.print("\n[bold]Faults of the environment[/bold]")
    for fault in examination.faults:
        out.print(f"[yellow]![/yellow]    {fault.name}: {fault.finding} {fault.consequence}")
        out.print(f"     {fault.remedy}", markup=False)


def examine() -> Examination:
    """Check everything that a recording uses."""
    job = JobTree(os.getpid(), lambda: (), lambda: ())
    samplers, missing = build_samplers(job)
    info = node_info(sample_interval_ns=0, spool="")
    groups = sorted({sampler.group for sampler in samplers})
    checks = [
        _framework(),
        _windows(),
        Check(
            name="cores",
            available=True,
            detail=f"{number(info.cores_available)} of {info.cores_total} available to a job",
        ),
        _memory(info.memory_bytes, info.memory_limit_bytes),
        _spool(),
        _stacks_from_outside(),
        _import(),
        *(Check(name=f"{group} metrics", available=True, detail="sampled") for group in groups),
        *(
            Check(name=f"{group} metrics", available=False, detail=reason)
            for group, reason in sorted(missing.items())
        ),
    ]
    return Examination(python=sys.version.split()[0], checks=checks, faults=find_faults())


def _framework() -> Check:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check(
            name="PyTorch adapters",
            available=False,
            detail="torch is not installed in this environment; a job may run in another one",
        )
    return Check(name="PyTorch adapters", available=True, detail=f"torch {version}")


def _windows() -> Check:
    """Check with a real socket whether libkineto can reach the monitor."""
    name = "detailed windows"
    if "KINETO_USE_DAEMON" in os.environ:
        return Check(
            name=name,
            available=True,
            detail="in the training process: KINETO_USE_DAEMON is set, so libkineto uses "
            "another daemon",
        )
    directory = make_directory()
    peer = open_peer(directory)
    try:
        served = peer is not None
    finally:
        if peer is not None:
            peer.close()
        if directory is not None:
            shutil.rmtree(directory)
    if served:
        return Check(name=name, available=True, detail="by libkineto, without pausing the job")
    return Check(
        name=name,
        available=True,
        detail="in the training process: no directory has a path short enough for libkineto's "
        "sockets",
    )


def _memory(total: int | None, limit: int | None) -> Check:
    detail = memory(total) + (
        f", limited to {memory(limit)} by the cgroup" if limit is not None else ""
    )
    return Check(name="memory", available=True, detail=detail)


def _stacks_from_outside() -> Check:
    reason = explain_missing_stacks()
    detail = "sampled by py-spy" if reason is None else reason
    return Check(name="stacks with attach", available=reason is None, detail=detail)


def _import() -> Check:
    available, detail = trace_decoder()
    return Check(name="fast import of traces", available=available, detail=f"decoded {detail}")


def _spool() -> Check:
    base = next(spool_bases(None, DEFAULT_SPOOL_LIMIT_BYTES), None)
    if base is None:
        detail = "span logs go nowhere: no temporary directory is writable"
    elif base == SHARED_MEMORY:
        detail = f"{SHARED_MEMORY}, {memory(shutil.disk_usage(SHARED_MEMORY).free)} free"
    else:
        detail = f"span logs go to {base}"
    return Check(name="spool in memory", available=base == SHARED_MEMORY, detail=detail)
