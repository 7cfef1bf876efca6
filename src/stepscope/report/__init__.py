"""The report as files and in notebooks.

Belongs here: HTML, notebooks, how charts look outside of the page. Does not belong here: numbers
and sentences; they are in `views.report`.

    html         one page that needs no network
    notebook     the same sections as cells
    display      what those cells show
    drawing      charts by Matplotlib, where it is installed
    chart_tables their numbers, where it is not
"""

from __future__ import annotations

from stepscope.report.display import Shown, show

__all__ = ["Shown", "show"]
