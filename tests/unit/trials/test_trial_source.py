"""Script on the command line of a job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stepscope.errors import UsageError
from stepscope.masking import MASK
from stepscope.monitor import node_name
from stepscope.testing import RunBuilder
from stepscope.trials import JobSource
from stepscope.trials.schedule import find_script


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python -u train.py --config cfg.py", "train.py"),
        ("torchrun --nproc-per-node=2 train.py -m small", "train.py"),
        ("accelerate launch --config_file=accelerate.py train.py", "train.py"),
        ("python -m pkg.train --config=cfg.py", None),
        ("python -m pkg.train cfg.py", None),
    ],
)
def test_scripts_are_told_from_options_and_modules(command: str, script: str | None) -> None:
    path = find_script(command.split(), "/job")
    assert path == (None if script is None else Path("/job", script))


@pytest.mark.parametrize(
    ("nodes", "command", "sentence"),
    [
        ([], ["true"], "This run holds no job that stepscope started"),
        (["a", "b"], ["true"], "The job ran on 2 nodes; a trial runs on one machine only."),
        (["another"], ["true"], "try the change there, or record the job here first"),
        ([node_name()], ["true", MASK], "The recorded command has a masked secret"),
        ([node_name()], ["python", "-"], "The job reads its script from standard input"),
        ([node_name()], ["no-such-program"], "activate the environment of the job"),
        ([node_name()], ["true", "absent.py"], "The script of the job, .+/absent.py, no longer"),
    ],
)
def test_jobs_that_cannot_be_repeated(
    tmp_path: Path, nodes: list[str], command: list[str], sentence: str
) -> None:
    builder = RunBuilder(tmp_path / "run")
    for node in nodes:
        builder.rank(node=node)
    run = builder.open()
    info = msgspec.structs.replace(run.reader.info, working_directory=str(tmp_path))
    run.reader.info = info
    with pytest.raises(UsageError, match=sentence):
        JobSource.of_run(run, command)
