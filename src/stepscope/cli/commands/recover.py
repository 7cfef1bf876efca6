"""`stepscope recover RUN`: store the records that a killed job or monitor left in the spool, and
finish an interrupted upload."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from stepscope import monitor, quantities, store
from stepscope.cli.job.staging import Staging, explain_incomplete, find_staged, staging_option
from stepscope.cli.options.common import json_option, run_argument
from stepscope.cli.output import print_json_line, say

INCOMPLETE = 1
"""Exit status if the upload is not complete."""


@click.command(
    "recover",
    help="Store in RUN the data recorded before a job or its monitor was killed, and finish the "
    "upload to an object store. Repeating it changes nothing.",
)
@staging_option
@run_argument
@json_option("stepscope.monitor.Recovery")
def command(run: str, staging: Path | None, as_json: bool) -> None:
    staged = find_staged(run, staging)
    if staged is None and store.is_remote(run):
        reason = f"this machine has no recording for {run} that is not uploaded yet"
        recovery = monitor.Recovery(
            spool=None, row_count=0, state=None, complete=True, reason=reason
        )
    else:
        recovery = monitor.recover_run(run if staged is None else str(staged.directory))
    if staged is not None:
        recovery = msgspec.structs.replace(recovery, upload=_finish_upload(staged, recovery))
    if as_json:
        print_json_line(recovery)
    else:
        click.echo(_sentence(recovery, staged))
    if recovery.upload is not None and not recovery.upload.complete:
        sys.exit(INCOMPLETE)


def _finish_upload(staging: Staging, recovery: monitor.Recovery) -> monitor.UploadEnd:
    """Upload a recording whose spool was recovered; remove it if that was all of it."""
    end = monitor.Uploader(staging.directory).finish(
        on_wait=lambda remaining: say(f"Uploading {remaining} to {staging.url}.")
    )
    if end.complete and recovery.complete and (recovery.state is None or recovery.state.is_final):
        monitor.discard_staging(staging.directory)
    return end


def _sentence(recovery: monitor.Recovery, staged: Staging | None) -> str:
    sentences = []
    if recovery.spool is not None:
        rows = quantities.count_of(recovery.row_count, "row")
        reason = f" ({recovery.reason})" if recovery.reason else ""
        sentences.append(
            f"Recovered {rows} from {recovery.spool}. Job status: {recovery.state}{reason}."
        )
    elif recovery.upload is None:
        sentences.append(f"Nothing to recover: {recovery.reason}.")
    if staged is not None and recovery.upload is not None:
        sentences.append(
            f"The upload to {staged.url} is complete."
            if recovery.upload.complete
            else explain_incomplete(staged, recovery.upload)
        )
    return " ".join(sentences)
