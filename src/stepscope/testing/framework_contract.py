"""Contract of an adapter of a framework: a test suite to inherit. It needs pytest.

pytest.register_assert_rewrite("stepscope.testing.framework_contract")
from stepscope.testing.framework_contract import FrameworkContract

class TestMyFramework(FrameworkContract):
    script = "train_with_my_framework.py"
    modules = ("my_framework",)

The script trains a small model with the framework. It accepts these options:

    --steps N       training steps
    --evaluate      evaluate the model during or after the training
    --slow-loader   load data so slowly that it takes most of a step

and, if the class says so,

    --slow-callback     have a callback that takes most of a step
    --validate-often    evaluate so often that it takes longer than the steps

and prints a line `result TEXT` per rank at its end, in which TEXT is the same for equal losses and
weights, to the last bit. If it can, it prints `waited SECONDS` as well: the time that its training
thread has waited for batches, by a clock around them.

Tests run the script several times, `stepscope` in the interpreter of the tests and the script in
`python`, which needs no stepscope.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import stepscope
from stepscope.store import open_run

__all__ = ["FrameworkContract"]

PLANTED_ERROR = "planted failure of a probe"
_FAILING_PROBE = f"""
import os
if os.environ.get("STEPSCOPE_SPOOL"):
    from stepscope.capture import session
    from stepscope.spool import Kind

    original = session.Session.meta

    def meta(self, key):
        if key[0] in (Kind.OPTIMIZER, Kind.DISPATCH):
            raise RuntimeError("{PLANTED_ERROR}")
        return original(self, key)

    session.Session.meta = meta
"""
_SUM_TOLERANCE = 1e-6
_CLOCK_TOLERANCE = 0.05


@dataclass(frozen=True)
class _Job:
    """A job that has ended."""

    run: Path
    code: int
    stdout: str
    stderr: str

    @property
    def results(self) -> list[str]:
        """Results of the ranks, in alphabetical order."""
        return sorted(line for line in self.stdout.splitlines() if line.startswith("result "))

    def payload(self, *arguments: str) -> dict[str, Any]:
        """Return the JSON of a command about the run."""
        command, *rest = arguments
        done = subprocess.run(
            [*_stepscope(), command, str(self.run), *rest, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        payload: dict[str, Any] = json.loads(done.stdout)
        return payload

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """Steps of each rank, as `stepscope show RUN steps --json` has them."""
        ranks: list[dict[str, Any]] = self.payload("show", "steps")["ranks"]
        return ranks

    def notes(self) -> list[str]:
        """Return the notes of all processes about missing records."""
        return [note for process in open_run(self.run).processes() for note in process.notes]


class FrameworkContract:
    """Requirements on the adapter of a framework."""

    script: ClassVar[str | Path]
    """Training script; see the docstring of the module."""
    arguments: ClassVar[Sequence[str]] = ()
    """Further arguments of the script."""
    modules: ClassVar[Sequence[str]]
    """Modules that belong to the framework, and that a job may not get before it imports them."""
    launcher: ClassVar[Sequence[str]] = ()
    """Arguments of the interpreter before the script, such as `-m torch.distributed.run`."""
    step_count: ClassVar[int] = 40
    """Training steps of a rank, as passed to the script; enough for the planted cause to show."""
    rank_count: ClassVar[int] = 1
    phases: ClassVar[frozenset[str]] = frozenset({"data_wait", "optimizer"})
    """Phases that the adapter records in every step of this script."""
    callback: ClassVar[str | None] = None
    """Callback of `--slow-callback`, as `CLASS.METHOD`; None for a framework without callbacks."""
    validates_often: ClassVar[bool] = False
    """The script accepts `--validate-often`."""
    versions: ClassVar[frozenset[str]] = frozenset()
    """Names of the versions that are recorded, as `ProcessInfo.versions` has them; empty if the
    adapter records none."""
    timeout_s: ClassVar[float] = 300.0
    """Time after which a job is taken for stuck."""

    @pytest.fixture(scope="class")
    @classmethod
    def python(cls) -> str:
        """Return the interpreter with the framework. Override it to skip tests without one."""
        return sys.executable

    @pytest.fixture(scope="class")
    @classmethod
    def slow_job(cls, python: str, tmp_path_factory: pytest.TempPathFactory) -> _Job:
        """Run the script with the slow loader."""
        job = cls._run(python, tmp_path_factory.mktemp(cls.__name__), "--slow-loader")
        assert job.code == 0, job.stderr
        return job

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, python: str, tmp_path_factory: pytest.TempPathFactory) -> _Job:
        """Run the script, with evaluation, in strict mode: errors of probes reach the job."""
        directory = tmp_path_factory.mktemp(cls.__name__)
        job = cls._run(python, directory, "--evaluate", STEPSCOPE_STRICT="1")
        assert job.code == 0, job.stderr
        return job

    def test_every_step_is_counted(self, job: _Job) -> None:
        assert [rank["step_count"] for rank in job.ranks] == [self.step_count] * self.rank_count
        assert not job.notes()

    def test_phases_sum_to_the_step(self, job: _Job) -> None:
        for rank in job.ranks:
            total_ns = sum(phase["mean_ns"] for phase in rank["phases"])
            assert total_ns == pytest.approx(rank["step_ns"]["mean"], rel=_SUM_TOLERANCE)
            recorded = {phase["name"] for phase in rank["phases"] if phase["mean_ns"] > 0}
            assert recorded >= self.phases

    def test_evaluation_is_apart(self, job: _Job) -> None:
        assert all(rank["evaluation_ns"] > 0 for rank in job.ranks)

    def test_versions_are_recorded(self, job: _Job) -> None:
        if not self.versions:
            pytest.skip("the adapter records no versions")
        ranks = [process for process in open_run(job.run).processes() if process.role == "main"]
        recorded = [process.versions.keys() for process in ranks if len(process.versions) > 1]
        assert len(recorded) == self.rank_count
        assert all(names >= self.versions for names in recorded)

    def test_the_result_is_the_same_without_stepscope(
        self, python: str, job: _Job, tmp_path: Path
    ) -> None:
        bare = self._start([*self._command(python), "--evaluate"], tmp_path, {})
        assert bare.code == 0, bare.stderr
        assert len(bare.results) == self.rank_count
        assert bare.results == job.results

    def test_nothing_is_imported_before_the_job_does(self, python: str, tmp_path: Path) -> None:
        code = (
            "import sys; adapters = [name for name in sys.modules "
            "if name.startswith('stepscope.capture.frameworks.')]; "
            f"print([name for name in {[*self.modules]!r} if name in sys.modules], adapters)"
        )
        done = self._start([*_run_command(tmp_path), python, "-c", code], tmp_path, {})
        assert done.stdout == "[] ['stepscope.capture.frameworks.registry']\n", done.stderr

    def test_a_failing_probe_switches_itself_off(
        self, python: str, job: _Job, tmp_path: Path
    ) -> None:
        (tmp_path / "sitecustomize.py").write_text(_FAILING_PROBE)
        paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
        failed = self._run(python, tmp_path, "--evaluate", PYTHONPATH=os.pathsep.join(paths))
        assert failed.code == 0, failed.stderr
        assert failed.results == job.results
        notes = [note for note in failed.notes() if PLANTED_ERROR in note]
        assert len(notes) >= self.rank_count  # two probes of one process may record the same kind
        assert all(note.startswith("stopped recording ") for note in notes)

    def test_a_slow_loader_is_named(self, slow_job: _Job) -> None:
        verdict = slow_job.payload("diagnose")
        assert verdict["suspect"] == "data_pipeline", verdict["headline"]

    def test_a_slow_callback_is_named(self, python: str, tmp_path: Path) -> None:
        if self.callback is None:
            pytest.skip("the framework has no callbacks")
        verdict = self._diagnose(python, tmp_path, "--slow-callback")
        assert verdict["cause"] == "python_overhead", verdict["headline"]
        texts = [evidence["text"] for evidence in verdict["evidence"]]
        assert any(text.startswith(f"The callback {self.callback} takes") for text in texts), texts

    def test_too_frequent_validation_is_named(self, python: str, tmp_path: Path) -> None:
        if not self.validates_often:
            pytest.skip("the script has no option --validate-often")
        verdict = self._diagnose(python, tmp_path, "--validate-often")
        assert verdict["cause"] == "evaluation", verdict["headline"]

    def test_waits_are_those_of_a_clock_in_the_script(self, slow_job: _Job) -> None:
        lines = [line.split() for line in slow_job.stdout.splitlines()]
        waited_s = sum(float(line[1]) for line in lines if line[:1] == ["waited"])
        if not waited_s:
            pytest.skip("the script measures no waits")
        spans = [*stepscope.open(slow_job.run).framework(kind="data_wait").rows()]
        recorded_ns = sum(span["end_ns"] - span["start_ns"] for span in spans)
        assert recorded_ns / 1e9 == pytest.approx(waited_s, rel=_CLOCK_TOLERANCE)

    @classmethod
    def _diagnose(cls, python: str, directory: Path, option: str) -> dict[str, Any]:
        job = cls._run(python, directory, option)
        assert job.code == 0, job.stderr
        return job.payload("diagnose")

    @classmethod
    def _run(cls, python: str, directory: Path, *options: str, **variables: str) -> _Job:
        command = [*_run_command(directory), *cls._command(python), *options]
        return cls._start(command, directory, variables)

    @classmethod
    def _command(cls, python: str) -> list[str]:
        script = [str(cls.script), *cls.arguments, "--steps", str(cls.step_count)]
        return [python, *cls.launcher, *script]

    @classmethod
    def _start(cls, command: list[str], directory: Path, variables: dict[str, str]) -> _Job:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=cls.timeout_s,
            cwd=directory,
            env={**os.environ, **variables},
        )
        return _Job(directory / "run", done.returncode, done.stdout, done.stderr)


def _run_command(directory: Path) -> list[str]:
    options = ["--quiet", "--no-rules", "--window", "off"]
    return [*_stepscope(), "run", *options, "--out", str(directory / "run"), "--"]


def _stepscope() -> list[str]:
    return [sys.executable, "-m", "stepscope"]
