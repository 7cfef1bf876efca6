"""`--help` of a command on one screen: an example, and of many options the everyday ones.

`--help-all` shows all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import click

_RUN = "stepscope-runs/20261120-train"
EXAMPLES = {
    "run": "--tensors losses -- torchrun --nproc-per-node 2 train.py",
    "attach": "4711 --once",
    "import": "traces/ -o stepscope-runs/imported",
    "export": f"{_RUN} --to perfetto -o run.perfetto",
    "show": f"{_RUN} operators --top 5",
    "sql": f"{_RUN} 'SHOW TABLES'",
    "diagnose": f"{_RUN} --all",
    "what-if": f"{_RUN} --fix workers=4",
    "try": f"{_RUN}",
    "compare": "runs/base runs/new --fail-if 'step_time>+5%'",
    "cost": f"{_RUN} --instance-type p4d.24xlarge",
    "tag": f"{_RUN} baseline --title 'New loader'",
    "fleet": "s3://bucket/runs --by project",
    "rules": f"check {_RUN} --rule StepOutlier",
    "rules list": "",
    "rules explain": "StepOutlier",
    "rules check": f"{_RUN} --rule StepOutlier",
    "report": f"{_RUN} -o report.html",
    "watch": f"{_RUN}",
    "ui": "stepscope-runs",
    "mcp": "stepscope-runs",
    "capture": f"{_RUN} --steps 20 --stacks",
    "configure": f"{_RUN} --interval 100",
    "recover": f"{_RUN}",
    "doctor": "-- python",
    "schema": "steps",
    "completion": "bash",
}
"""What follows the name of each command in its example."""
EVERYDAY = {
    "run": (
        "--out --start-step --num-steps --tensors --stop-on --on-stuck --report --usd-per-hour "
        "--try --quiet"
    ),
    "show": "--rank --trace --by --csv --json",
    "export": "--to --output --trace --rank --merge --view --table",
    "configure": "--interval --rule --start-step --num-steps --automatic --json",
}
"""Options shown by `--help` of commands whose options do not fit on one screen."""
ALL = "--help-all"


def fit_help(name: str, command: click.Command, words: Sequence[str]) -> click.Command:
    """Return a command with its example in its help, and few options, unless the words ask for
    all."""
    command = copy.deepcopy(command)
    command.epilog = f"\b\nExample:\n  stepscope {name} {EXAMPLES[name]}".rstrip()
    if isinstance(command, click.Group):
        inner = command.commands.items()
        command.commands = {key: fit_help(f"{name} {key}", one, words) for key, one in inner}
    everyday = EVERYDAY.get(name, "").split()
    if everyday and ALL not in words:
        command.epilog += f"\n\nAll options: stepscope {name} {ALL}"
    for option in command.params:
        if isinstance(option, click.Option) and everyday:
            option.hidden = ALL not in words and not set(everyday).intersection(option.opts)
    return command
