"""Script on the command line of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.trials.source import find_script


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
