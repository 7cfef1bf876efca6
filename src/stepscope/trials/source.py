"""Command, directory and environment of a recorded job, for running it again."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.capture.trial import DEBUG_VARIABLES
from stepscope.errors import UsageError
from stepscope.masking import MASK
from stepscope.monitor import node_name
from stepscope.run import Run
from stepscope.schema import ImportedFact, SettingsFact

OWN_PREFIX = "STEPSCOPE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
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
            raise UsageError(f"The working directory of the job, {directory}, no longer exists.")
        words = list(command or info.command)
        _check_words(words)
        environment = _recorded_environment(run)
        program = shutil.which(Path(directory, words[0]) if "/" in words[0] else words[0])
        if program is None:
            raise UsageError(
                f"The program {words[0]} of the job is not found here; activate the environment "
                "of the job."
            )
        script = find_script(words, directory)
        notes = []
        if script is not None:
            if not script.is_file():
                raise UsageError(f"The script of the job, {script}, no longer exists.")
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
    if any(process.facts_of(ImportedFact) for process in processes) or not processes:
        raise UsageError(
            "This run holds no job that stepscope started, so there is no command to try. Record "
            "the job with `stepscope run -- CMD`."
        )
    nodes = list(run.nodes)
    if len(nodes) > 1:
        raise UsageError(f"The job ran on {len(nodes)} nodes; a trial runs on one machine only.")
    if nodes and nodes[0] != node_name():
        raise UsageError(
            f"The job ran on {nodes[0]} and this is {node_name()}; try the change there, or "
            "record the job here first."
        )


def _check_words(words: Sequence[str]) -> None:
    if any(MASK in word for word in words):
        raise UsageError(
            "The recorded command has a masked secret. Give the command: `stepscope try RUN -- "
            "CMD`."
        )
    if "-" in words[1:2] or (len(words) == 1 and Path(words[0]).name.startswith("python")):
        raise UsageError("The job reads its script from standard input, which was not recorded.")


def _recorded_environment(run: Run) -> dict[str, str]:
    """Return this environment, with the modules' path and the debug and thread variables of the
    recorded job."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith(OWN_PREFIX)}
    python_path = run.reader.info.options.get("python_path")
    if python_path:
        variables["PYTHONPATH"] = python_path
    settings = run.ranks[0].facts(SettingsFact) if run.ranks else []
    if settings:
        for name in (*DEBUG_VARIABLES, "OMP_NUM_THREADS"):
            variables.pop(name, None)
        variables.update(settings[-1].variables)
    return variables
