"""Report as one HTML page that opens from disk and needs no network."""

from __future__ import annotations

import re
from html import escape

import msgspec

from stepscope.assets import read_web_asset
from stepscope.errors import UsageError
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
<script>{script}</script>
</body>
</html>
"""
_UNSAFE_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_END_TAG = re.compile(r"</(?=script|style)", re.IGNORECASE)


def render_html(report: Report) -> str:
    """Render the page.

    Raises:
        UsageError: this installation lacks the built script.
    """
    try:
        script, style = read_web_asset("report.js"), read_web_asset("report.css")
    except FileNotFoundError as error:
        raise UsageError(NOT_BUILT) from error
    return _PAGE.format(
        policy=_POLICY,
        version=escape(report.version),
        title=escape(f"{report.run_id}: profiling report"),
        headline=escape(report.verdict.headline),
        style=_END_TAG.sub(r"<\\/", style),
        payload=json_in_script(report),
        script=_END_TAG.sub(r"<\\/", script),
    )


def json_in_script(payload: msgspec.Struct) -> str:
    """Encode JSON that cannot end a script element or open a comment, for any names in it."""
    return msgspec.json.encode(payload).decode().translate(_UNSAFE_IN_SCRIPT)
