"""The summary of a run as a JSON file.

What it holds is in `comparison.summary`.
"""

from __future__ import annotations

from pathlib import Path

from stepscope import output_files
from stepscope.comparison import get_summary
from stepscope.exporters.registry import ExportOptions, Written, require_output
from stepscope.quantities import count_of
from stepscope.run import Run


class SummaryExporter:
    """Exporter of summaries; see `registry.Exporter`."""

    options = frozenset[str]()

    def choose_output(self, output: str | None) -> str:
        """Return the file; see `registry.LiveExporter`."""
        return require_output("summary", output, "file")

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[Written]:
        """Write the summary."""
        summary = get_summary(run)
        with output_files.atomic_write(Path(output)) as file:
            file.write(summary.encode())
        numbers, texts = len(summary.metrics), len(summary.texts)
        content = f"{count_of(numbers, 'number')}, {count_of(texts, 'text')}"
        return [Written(path=output, content=content)]
