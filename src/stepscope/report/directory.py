"""Report as a directory of the files that SageMaker Debugger writes.

profiler-report.html
profiler-report.ipynb
profiler-reports/RULE.json   one for each rule
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepscope.output_files import atomic_write
from stepscope.schema import Finding

RULE_KEYS = ("RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters")
"""Keys of the file of a rule."""
REPORT_NAME = "profiler-report"
RULES_NAME = "profiler-reports"


def write_report_directory(
    directory: Path, *, page: str, notebook: bytes, findings: Mapping[str, Finding]
) -> None:
    """Write the files, each at once, so that a reader of a running job sees whole ones.

    Args:
        directory: where they go; created if absent.
        page: the report as HTML.
        notebook: the report as a notebook in that directory.
        findings: findings of the rules by name.
    """
    rules_directory = directory / RULES_NAME
    rules_directory.mkdir(parents=True, exist_ok=True)
    contents = {
        directory / f"{REPORT_NAME}.html": page.encode(),
        directory / f"{REPORT_NAME}.ipynb": notebook,
    } | {rules_directory / f"{rule}.json": render_finding(f) for rule, f in findings.items()}
    for path, content in contents.items():
        with atomic_write(path) as file:
            file.write(content)


def render_finding(finding: Finding) -> bytes:
    """Render a finding with the keys of Debugger's files.

    Details of a rule without data, or of one that failed, name the reason: its zeros are no counts.
    """
    fields: dict[str, Any] = msgspec.to_builtins(finding)
    reasons = {name: fields[name] for name in ("missing", "error") if fields[name] is not None}
    fields["Details"] |= reasons
    return msgspec.json.format(msgspec.json.encode({key: fields[key] for key in RULE_KEYS}))
