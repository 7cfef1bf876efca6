"""Report as one HTML page that needs no network, and as the files of SageMaker Debugger.

The files of SageMaker Debugger, in a directory:

    profiler-report.html
    profiler-report.ipynb
    profiler-reports/RULE.json   one for each rule
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from stepscope import assets, diagnosis, errors, output_files, schema
from stepscope.views.profiling_report import Report

NOT_BUILT = (
    "This installation lacks the built web files. Run `make web` in the source tree (or "
    "`pip install .`), or write the report as .ipynb or .json."
)
# The page can load nothing and send nothing, even if a name in the run became markup.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="stepscope {version}">
<link rel="icon" href="data:,">
<!-- The script contains Apache ECharts (Apache-2.0), zrender (BSD-3-Clause), tslib (0BSD), Preact
and its signals (MIT). -->
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="report"><noscript>{headline} (Enable JavaScript to see the charts and tables of this
page.)</noscript></div>
<script type="application/json" id="payload">{payload}</script>
<script type="application/gzip" id="script">{script}</script>
<script>{loader}</script>
</body>
</html>
"""
_LOADER = """
const packed = atob(document.getElementById("script").textContent);
const bytes = new Blob([Uint8Array.from(packed, (letter) => letter.charCodeAt(0))]);
const text = new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text();
text.then((source) => {
  const script = document.createElement("script");
  script.textContent = source;
  document.body.append(script);
});
"""
"""Script that runs the compressed script of the page, which is half as large in base64."""
_UNSAFE_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_END_TAG = re.compile(r"</(?=style)", re.IGNORECASE)


def _write_headline(verdict: diagnosis.Verdict) -> str:
    death = "" if verdict.death is None else f"{verdict.death.headline} "
    return f"{death}{verdict.headline}"


def render_html(report: Report) -> str:
    """Render the page.

    Raises:
        UsageError: this installation lacks the built script.
    """
    try:
        script, style = assets.read_web_asset("report.js"), assets.read_web_asset("report.css")
    except FileNotFoundError as error:
        raise errors.UsageError(NOT_BUILT) from error
    return _PAGE.format(
        policy=_POLICY,
        version=escape(report.version),
        title=escape(f"{report.name}: profiling report"),
        headline=escape(_write_headline(report.verdict)),
        style=_END_TAG.sub(r"<\\/", style),
        payload=json_in_script(report),
        script=base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode(),
        loader=_LOADER,
    )


def json_in_script(payload: msgspec.Struct) -> str:
    """Encode JSON that cannot end a script element or open a comment, for any names in it."""
    return msgspec.json.encode(payload).decode().translate(_UNSAFE_IN_SCRIPT)


RULE_KEYS = ("RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters")
"""Keys of the file of a rule."""
REPORT_NAME = "profiler-report"
RULES_NAME = "profiler-reports"


def write_report_directory(
    directory: Path, *, page: str, notebook: bytes, findings: Mapping[str, schema.Finding]
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
        with output_files.atomic_write(path) as file:
            file.write(content)


def render_finding(finding: schema.Finding) -> bytes:
    """Render a finding with the keys of Debugger's files.

    Details of a rule without data, or of one that failed, name the reason: its zeros are no counts.
    """
    fields: dict[str, Any] = msgspec.to_builtins(finding)
    reasons = {name: fields[name] for name in ("missing", "error") if fields[name] is not None}
    fields["Details"] |= reasons
    return msgspec.json.format(msgspec.json.encode({key: fields[key] for key in RULE_KEYS}))
