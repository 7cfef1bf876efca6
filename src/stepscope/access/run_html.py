"""An open run as an HTML fragment, for notebooks: its overview and its verdict."""

from __future__ import annotations

import shlex
from html import escape

from stepscope.diagnosis import render_dim
from stepscope.quantities import count_of, duration, percent
from stepscope.views import Overview, utc_time


def render_overview(overview: Overview) -> str:
    """Render the job, its state, its figures and the verdict."""
    facts = [", ".join(sorted({str(node.state) for node in overview.nodes}))]
    if overview.started_ns is not None:
        facts.append(f"started {utc_time(overview.started_ns)}")
    facts.append(f"took {duration(overview.duration_ns)}")
    if overview.rank_count:
        facts.append(count_of(overview.rank_count, "rank"))
    if overview.step_ns is not None:
        facts.append(
            f"{count_of(overview.step_ns.count, 'step')} of {duration(overview.step_ns.mean)}"
        )
    for name, ratio in (("GPU", overview.gpu_busy_ratio), ("CPU", overview.cpu_busy_ratio)):
        if ratio is not None:
            facts.append(f"{name} busy {percent(ratio)}")
    line = " · ".join(escape(fact) for fact in facts if fact)
    return (
        f"<div><strong>{escape(overview.run_id)}</strong> "
        f"<code>{escape(shlex.join(overview.command))}</code>"
        f"{render_dim(line)}</div>{overview.verdict._repr_html_()}"
    )
