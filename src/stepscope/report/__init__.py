"""Report as files and in notebooks.

Belongs here: HTML, notebooks, the look of charts outside of the page. Does not belong here: numbers
and sentences; they are in `views.report`.

    html         one page that needs no network
    notebook     notebook with one cell per section
    display      output of those cells
    drawing      charts by Matplotlib, where it is installed
    chart_tables the same charts as tables, where it is not
    directory    the files that SageMaker Debugger writes
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
