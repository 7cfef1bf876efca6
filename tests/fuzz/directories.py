"""Run directories with damaged, missing and hostile files, and what readers make of them."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.views import DEFAULTS, VIEWS
from tests.fuzz.mutation import mutations

READ_VIEWS = ("overview", "recordings", "steps", "system", "input-pipeline", "configuration")
_CHANGES = (
    "mutate", "truncate", "value", "value", "remove", "empty", "folder", "pipe", "loop", "link",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (None, -1, 2**70, 1e308, "", "../../etc", [], {}, True, [[[]]])


def damage(run: Path, chance: random.Random) -> str:
    """Change one file of a run; returns what was done."""
    path = chance.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    change = chance.choice(_CHANGES)
    content = path.read_bytes()
    if change == "mutate":
        (content,) = mutations([content], 1, chance.randrange(2**32))
        path.write_bytes(content)
    elif change == "truncate":
        path.write_bytes(content[: chance.randrange(len(content) + 1)])
    elif change == "value" and path.suffix == ".json":
        path.write_text(json.dumps(_with_odd_value(json.loads(content), chance)))
    elif change == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        if change == "folder":
            (path / "x").mkdir(parents=True)
        elif change == "pipe":
            os.mkfifo(path)
        elif change == "loop":
            path.symlink_to(run)
        elif change == "link":
            path.symlink_to("/dev/zero")
    return f"{change} {path.relative_to(run)}"


def _with_odd_value(value: Any, chance: random.Random) -> Any:
    """Replace one value, at a random depth."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        return {**value, key: _with_odd_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        index = chance.randrange(len(value))
        return [*value[:index], _with_odd_value(value[index], chance), *value[index + 1 :]]
    return chance.choice(_VALUES)


def read(run: Path) -> None:
    """Show some views of a run.

    Raises:
        Exception: anything but an error that users see as a sentence.
    """
    for name in READ_VIEWS:
        try:
            VIEWS[name].load()(Run(open_run(run, threads=1)), DEFAULTS)
        except (StepscopeError, OSError):
            continue


def read_damaged(drawn: Path, scratch: Path, seed: int) -> str:
    """Damage a copy of a run in one to three places, and read it; returns what was done."""
    chance = random.Random(seed)
    run = scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(drawn, run)
    changes = [damage(run, chance) for _ in range(chance.randint(1, 3))]
    try:
        read(run)
    except Exception as error:
        error.add_note(f"seed {seed}: {'; '.join(changes)}")
        raise
    return "; ".join(changes)
