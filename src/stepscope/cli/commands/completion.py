"""`stepscope completion SHELL`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

SHELLS = {
    "bash": (BashComplete, 'eval "$(stepscope completion bash)" in ~/.bashrc'),
    "zsh": (ZshComplete, 'eval "$(stepscope completion zsh)" in ~/.zshrc'),
    "fish": (FishComplete, "stepscope completion fish > ~/.config/fish/completions/stepscope.fish"),
}
"""Completion of each shell, and how its script is used."""


@click.command(
    "completion",
    help="Print the script with which SHELL completes commands and options:\n\n\b\n"
    + "\n".join(f"{shell:5} {use}" for shell, (_, use) in SHELLS.items()),
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    completion = SHELLS[shell][0]
    root = context.find_root().command
    click.echo(completion(root, {}, "stepscope", "_STEPSCOPE_COMPLETE").source())
