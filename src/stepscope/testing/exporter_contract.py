"""Contract of an exporter of files: a test suite to inherit. It needs pytest.

pytest.register_assert_rewrite("stepscope.testing.exporter_contract")
from stepscope.testing.exporter_contract import ExporterContract

class TestMyExporter(ExporterContract):
    format = "my-format"
    file_name = "run.bin"

Tests export a drawn run with two ranks, a window, samples of the machine, stacks and scalars by the
registry, as `stepscope export` does, so the exporter must be an installed one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from stepscope import errors, exporters
from stepscope.run import Run
from stepscope.testing.runs import RunBuilder

__all__ = ["ExporterContract"]

VALUES: dict[str, Any] = {
    "trace": "no such trace", "rank": 0, "merge": True, "spans": False, "counters": True,
    "steps": (1, 2), "source": ("system",), "suffix": ("x",), "gpu_below": 5.0,
    "reader": "tensorboard", "view": "steps", "table": "x",
}  # fmt: skip
"""A value of each option that is not its default."""


class ExporterContract:
    """Requirements on an exporter."""

    format: ClassVar[str]
    """Its name, which `--to` takes."""
    file_name: ClassVar[str]
    """Name of the output; a directory if it has no suffix."""
    options: ClassVar[exporters.ExportOptions] = exporters.ExportOptions()
    """Options with which the drawn run can be exported."""
    is_repeatable: ClassVar[bool] = True
    """Exporting twice gives the same bytes."""

    @classmethod
    def draw(cls, directory: Path) -> Run:
        """Draw the run that is exported."""
        builder = RunBuilder(directory)
        for number in (0, 1):
            rank = builder.rank(number, workers=1)
            rank.draw("wait 50 | forward 12 | backward 20 | optimizer 18", 40)
            rank.draw("window ( forward ( op:linear 5 | kernel:gemm 3 ) | optimizer 1 )")
        builder.metric("cpu_busy_ratio", 0.5).metric("gpu_busy_ratio", 0.25, device="0")
        return builder.open()

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory: pytest.TempPathFactory) -> Run:
        return cls.draw(tmp_path_factory.mktemp("exported") / "run")

    def export(self, run: Run, path: Path) -> dict[str, bytes]:
        """Export the run; returns the files by their paths below the directory of the output."""
        written = exporters.export(run, self.format, str(path), self.options)
        assert written
        for item in written:
            assert Path(item.path).is_file(), item.path
            assert item.content
            assert "\n" not in item.content
        return {
            str(file.relative_to(path.parent)): file.read_bytes()
            for file in sorted(path.parent.rglob("*"))
            if file.is_file()
        }

    def test_what_is_written_is_named_and_nothing_else_is_left(
        self, run: Run, tmp_path: Path
    ) -> None:
        path = tmp_path / "out" / self.file_name
        path.parent.mkdir()
        written = exporters.export(run, self.format, str(path), self.options)
        files = {file for file in path.parent.rglob("*") if file.is_file()}
        assert {Path(item.path) for item in written} == files

    def test_the_same_run_twice_gives_the_same_files(self, run: Run, tmp_path: Path) -> None:
        if not self.is_repeatable:
            pytest.skip("files of this format hold the time of the export")
        for name in "ab":
            (tmp_path / name).mkdir()
        first, second = (self.export(run, tmp_path / name / self.file_name) for name in "ab")
        assert first == second

    def test_an_existing_file_is_replaced(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / self.file_name
        if not path.suffix:
            pytest.skip("the format has a directory")
        expected = self.export(run, path)
        path.write_bytes(b"before")
        if self.is_repeatable:
            assert self.export(run, path) == expected
        else:
            assert self.export(run, path)[self.file_name] != b"before"

    def test_the_run_is_not_changed(self, tmp_path: Path) -> None:
        run = self.draw(tmp_path / "run")
        before = {path: path.stat().st_size for path in (tmp_path / "run").rglob("*.parquet")}
        (tmp_path / "out").mkdir()
        self.export(run, tmp_path / "out" / self.file_name)
        assert before == {p: p.stat().st_size for p in (tmp_path / "run").rglob("*.parquet")}

    def test_a_missing_directory_is_made_or_named(self, run: Run, tmp_path: Path) -> None:
        path = tmp_path / "missing" / self.file_name
        reason = ""
        try:
            exporters.export(run, self.format, str(path), self.options)
        except (OSError, errors.UsageError) as error:
            reason = str(error)
        assert path.exists() == (not reason)
        assert path.parent.exists() == (not reason)
        assert "missing" in reason or not reason

    def test_options_that_it_does_not_take_are_refused(self, run: Run, tmp_path: Path) -> None:
        accepted = exporters.load_exporter(self.format).options
        for name, value in VALUES.items():
            if name in accepted:
                continue
            options = replace(self.options, **{name: value})
            with pytest.raises(errors.UsageError, match=f"--to {self.format} does not take --"):
                exporters.export(run, self.format, str(tmp_path / self.file_name), options)
        assert not (tmp_path / self.file_name).exists()
