"""Steps of the trials of one job, and how the recorded job is run again."""

from __future__ import annotations

import itertools
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepscope import errors, masking, schema
from stepscope.capture.trial import DEBUG_VARIABLES
from stepscope.monitor import node_name
from stepscope.quantities import count_of
from stepscope.run import Epochs, Run, find_epochs

MIN_PAIRS = 3
MIN_STEPS = 10
DEFAULT_STEPS = 30
MAX_STEPS = 400
TARGET_S = 5.0
"""Measured time of a trial, where that needs more steps than the default."""
MAX_EPOCH_S = 20.0
"""Shorter epochs are measured whole, with the start of their workers and their evaluation."""
WARMUP_STEPS = 10
START_TIMEOUT_S = 180.0
COMPILE_TIMEOUT_S = 1200.0
SLOWDOWN = 10.0
"""A trial may take this many times the time that the run predicts for its steps."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of each trial."""

    warmup_step_count: int
    step_count: int
    timeout_s: float


def plan_schedule(
    run: Run, *, prefetched_count: int = 0, steps: int | None = None, compiles: bool = False
) -> Schedule:
    """Choose the steps of the trials of a job.

    Prefetched batches are made before the steps that use them, so the warm-up contains as many
    steps. Short epochs are measured whole: what happens once per epoch counts in proportion.

    Args:
        prefetched_count: most batches that workers prepare ahead, with or without the change.
        steps: measured steps, None to choose.
        compiles: True if the model is compiled in the warm-up.

    Raises:
        UsageError: the job has too few steps.
    """
    available = max((len(rank.steps) for rank in run.ranks), default=0)
    warmup = max(WARMUP_STEPS, prefetched_count)
    epochs = find_epochs(run)
    mean_s = run.mean_step_ns / 1e9 if available else 0.0
    if isinstance(epochs, Epochs):
        mean_s = max(mean_s, epochs.mean_ns / epochs.steps / 1e9)
    if available < warmup + MIN_STEPS + 2:
        warmup = max(3, available // 4)
    limit = available - warmup - 2
    if limit < MIN_STEPS:
        raise errors.UsageError(
            f"The job has {count_of(available, 'complete step')}; a trial needs at least "
            f"{MIN_STEPS + 5}."
        )
    default = steps or min(MAX_STEPS, max(DEFAULT_STEPS, math.ceil(TARGET_S / mean_s)))
    step_count = min(default, limit)
    if steps is None and isinstance(epochs, Epochs) and epochs.mean_ns / 1e9 <= MAX_EPOCH_S:
        length = round(epochs.steps)
        whole_count = min(math.ceil(step_count / length), limit // length) * length
        if whole_count >= MIN_STEPS:
            step_count = whole_count
    return Schedule(
        warmup_step_count=warmup,
        step_count=step_count,
        timeout_s=(COMPILE_TIMEOUT_S if compiles else START_TIMEOUT_S)
        + SLOWDOWN * (warmup + step_count) * mean_s,
    )


OWN_PREFIX = "STEPSCOPE_"


class JobSource(msgspec.Struct, frozen=True, kw_only=True):
    """A job that can be run again."""

    command: list[str]
    directory: str
    environment: dict[str, str]
    notes: list[str]
    """Differences from the recorded job, one sentence each."""

    @classmethod
    def of_run(cls, run: Run, command: Sequence[str] = ()) -> JobSource:
        """Return the job of a run.

        Args:
            command: the command, where the recorded one cannot be used.

        Raises:
            UsageError: the job cannot be run again here, with the reason.
        """
        info = run.reader.info
        _check_origin(run)
        directory = info.working_directory
        if not Path(directory).is_dir():
            raise errors.UsageError(
                f"The working directory of the job, {directory}, no longer exists."
            )
        words = list(command or info.command)
        _check_words(words)
        environment = _recorded_environment(run)
        program = shutil.which(Path(directory, words[0]) if "/" in words[0] else words[0])
        if program is None:
            raise errors.UsageError(
                f"The program {words[0]} of the job is not found here; activate the environment "
                "of the job."
            )
        script = find_script(words, directory)
        notes = []
        if script is not None:
            if not script.is_file():
                raise errors.UsageError(f"The script of the job, {script}, no longer exists.")
            if script.stat().st_mtime_ns > info.created_ns:
                notes.append(
                    f"{script.name} was changed after the run; predictions are those of the "
                    "recorded version."
                )
        return cls(command=words, directory=directory, environment=environment, notes=notes)

    def without_debug_variables(self) -> tuple[JobSource, list[str]]:
        """Return the job without debug variables in its environment, and their names."""
        removed = [name for name in DEBUG_VARIABLES if name in self.environment]
        environment = {name: text for name, text in self.environment.items() if name not in removed}
        return replace(self, environment=environment), removed


def find_script(words: Sequence[str], directory: str) -> Path | None:
    """Find the script on a command line; None without one, as with `python -m`."""
    before_module = itertools.takewhile(lambda word: word != "-m", words)
    name = next((w for w in before_module if w.endswith(".py") and not w.startswith("-")), None)
    return None if name is None else Path(directory, name)


def _check_origin(run: Run) -> None:
    processes = run.processes
    if any(process.facts_of(schema.ImportedFact) for process in processes) or not processes:
        raise errors.UsageError(
            "This run holds no job that stepscope started, so there is no command to try. Record "
            "the job with `stepscope run -- CMD`."
        )
    nodes = list(run.nodes)
    if len(nodes) > 1:
        raise errors.UsageError(
            f"The job ran on {len(nodes)} nodes; a trial runs on one machine only."
        )
    if nodes and nodes[0] != node_name():
        raise errors.UsageError(
            f"The job ran on {nodes[0]} and this is {node_name()}; try the change there, or "
            "record the job here first."
        )


def _check_words(words: Sequence[str]) -> None:
    if any(masking.MASK in word for word in words):
        raise errors.UsageError(
            "The recorded command has a masked secret. Give the command: `stepscope try RUN -- "
            "CMD`."
        )
    if "-" in words[1:2] or (len(words) == 1 and Path(words[0]).name.startswith("python")):
        raise errors.UsageError(
            "The job reads its script from standard input, which was not recorded."
        )


def _recorded_environment(run: Run) -> dict[str, str]:
    """Return this environment, with the modules' path and the debug and thread variables of the
    recorded job."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith(OWN_PREFIX)}
    python_path = run.reader.info.options.get("python_path")
    if python_path:
        variables["PYTHONPATH"] = python_path
    settings = run.ranks[0].facts(schema.SettingsFact) if run.ranks else []
    if settings:
        for name in (*DEBUG_VARIABLES, "OMP_NUM_THREADS"):
            variables.pop(name, None)
        variables.update(settings[-1].variables)
    return variables
