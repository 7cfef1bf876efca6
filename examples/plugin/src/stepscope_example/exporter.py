"""An exporter of the times of all steps as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from stepscope.exporters import ExportOptions, Written
from stepscope.run import Run


class StepsCsvExporter:
    """Exporter of the steps of a run, or of one rank; see `stepscope.exporters.Exporter`."""

    options = frozenset({"rank"})

    def export(self, run: Run, output: str, options: ExportOptions) -> list[Written]:
        """Write one row per step."""
        count = 0
        with Path(output).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["rank", "step", "start_ns", "wall_ns"])
            for rank in run.ranks:
                number, steps = rank.process.rank, rank.steps
                if options.rank is None or number == options.rank:
                    numbers, starts = steps.number.tolist(), steps.start.tolist()
                    rows = zip(numbers, starts, steps.wall_ns.tolist(), strict=True)
                    writer.writerows([number, *row] for row in rows)
                    count += len(steps)
        return [Written(path=output, content=f"{count} steps")]
